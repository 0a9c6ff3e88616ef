/** Sandboxes of tupper for Mastra's workspaces. */

export { TupperError } from './errors.js';
export type {
  HostMount,
  Instructions,
  MachineOptions,
  NetworkOptions,
  ServerOptions,
  TupperSandboxOptions,
} from './options.js';
export { tupperSandboxProvider, type TupperProviderConfig } from './provider.js';
export { TupperProcessHandle } from './process.js';
export { TupperProcessManager } from './processes.js';
export { TupperSandbox } from './sandbox.js';
