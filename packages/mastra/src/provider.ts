/** The description of this provider for MastraEditor. */

import type { SandboxProvider } from '@mastra/core/editor';
import type { MachineOptions, ServerOptions } from './options.js';
import { TupperSandbox } from './sandbox.js';

/** What can be stored as JSON. */
export interface TupperProviderConfig
  extends
    Pick<ServerOptions, 'url' | 'apiKey' | 'domain'>,
    Pick<
      MachineOptions,
      | 'template'
      | 'image'
      | 'cpus'
      | 'memoryMiB'
      | 'diskMiB'
      | 'idleTimeout'
      | 'timeout'
      | 'metadata'
      | 'minIsolation'
    > {
  env?: Record<string, string>;
}

const text = (description: string) => ({ type: 'string', description });
const number = (description: string) => ({ type: 'number', description });
const texts = (description: string) => ({
  type: 'object',
  description,
  additionalProperties: { type: 'string' },
});

export const tupperSandboxProvider: SandboxProvider<TupperProviderConfig> = {
  id: 'tupper',
  name: 'tupper',
  description: 'Sandboxes on your own machine, each under its own kernel',
  configSchema: {
    type: 'object',
    properties: {
      template: text('Template, or id of a snapshot'),
      image: text('OCI image, instead of a template'),
      cpus: number('Processors'),
      memoryMiB: number('Memory in MiB'),
      diskMiB: number('Disk in MiB'),
      idleTimeout: number('Milliseconds without activity until it ends'),
      timeout: number('Milliseconds that it lives at most'),
      minIsolation: { type: 'string', enum: ['user-kernel', 'emulated-vm', 'hardware-vm'] },
      env: texts('Environment of commands'),
      metadata: texts('Metadata'),
      url: text('URL of the server; this machine, if not given'),
      apiKey: text('Key for the server'),
      domain: text('What ports of that server are reached under'),
    },
  },
  createSandbox: config => new TupperSandbox(config),
};
