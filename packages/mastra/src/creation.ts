/** The body of create, in E2B's keys and tupper's own. */

import { createHash } from 'node:crypto';
import { resolve } from 'node:path';
import type { MachineOptions } from './options.js';
import type { Fields } from './json.js';

/** Metadata that says whose a sandbox is. @mastra/e2b uses the same, so either finds the other's. */
export const ID_KEY = 'mastra-sandbox-id';
const IDLE_MS = 30 * 60_000;

/**
 * @param id - of the workspace sandbox.
 * @param isKnown - whether somebody could ask for this id again.
 * @param source - template or snapshot; undefined for the image of the options.
 */
export function creation(
  options: MachineOptions,
  id: string,
  isKnown: boolean,
  source: string | undefined,
): Fields {
  const { network, volumes } = options;
  return defined({
    templateID: source,
    timeout: options.timeout === undefined ? null : options.timeout / 1000,
    metadata: { ...options.metadata, [ID_KEY]: id },
    autoPause: isKnown,
    allow_internet_access: network?.internet,
    network: network && defined({ allowOut: network.allowOut, denyOut: network.denyOut }),
    volumeMounts: volumes,
    tupper: machine(options, isKnown ? sandboxName(id) : undefined, source === undefined),
  });
}

function machine(options: MachineOptions, name: string | undefined, fromImage: boolean): Fields {
  return defined({
    name,
    image: fromImage ? options.image : undefined,
    idleTimeout: (options.idleTimeout ?? IDLE_MS) / 1000,
    backend: options.backend,
    minIsolation: options.minIsolation,
    cpus: options.cpus,
    memoryMiB: options.memoryMiB,
    diskMiB: options.diskMiB,
    pids: options.pids,
    user: options.user,
    mounts: options.hostMounts?.map(({ hostPath, path, readOnly = false }) => ({
      hostPath: resolve(hostPath),
      guestPath: path,
      readOnly,
    })),
  });
}

/** The name of a snapshot: the checkpoint's where it can be one. */
export function snapshotName(checkpoint: string): string {
  return fitting(checkpoint) ? checkpoint : hashed(checkpoint);
}

/** A name that only one sandbox at a time can have, so that two who begin at once share one. */
function sandboxName(id: string): string {
  return fitting(id) ? `mastra-${id}` : hashed(id);
}

function fitting(text: string): boolean {
  return /^[a-z0-9][a-z0-9-]{0,50}$/.test(text);
}

function hashed(text: string): string {
  return `mastra-${createHash('sha256').update(text).digest('hex').slice(0, 24)}`;
}

function defined(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
