/** What a sandbox is made with. */

import type { RequestContext } from '@mastra/core/di';
import type { MastraSandboxOptions } from '@mastra/core/workspace';

/** Text for the model about the sandbox, or a function that makes it from ours. */
export type Instructions =
  string | ((args: { defaultInstructions: string; requestContext?: RequestContext }) => string);

/** A directory of this machine in the sandbox. Only for the server of this machine's user. */
export interface HostMount {
  hostPath: string;
  path: string;
  readOnly?: boolean;
}

export interface NetworkOptions {
  /** Whether the internet can be reached; the server's setting if not given. */
  internet?: boolean;
  /** Addresses and networks that can be reached although the rest cannot. */
  allowOut?: string[];
  /** Addresses and networks that cannot be reached. */
  denyOut?: string[];
}

/** Where the server is, and who we are to it. */
export interface ServerOptions {
  /** Of a `tupper serve --listen`; TUPPER_URL if not given. Without one, this user's own server. */
  url?: string;
  /** For `url`; TUPPER_API_KEY if not given. */
  apiKey?: string;
  /** What ports are reached under, `PORT-ID.DOMAIN`, where the server does not say. */
  domain?: string;
  /** The program that starts this user's own server. `tupper` if not given. */
  program?: string;
}

/** What is asked for when a sandbox is made; one that is found again keeps what it has. */
export interface MachineOptions {
  /** Name of a template or id of a snapshot. `base` if neither this nor `image` is given. */
  template?: string;
  /** An OCI image instead, such as `docker.io/library/node:24`. */
  image?: string;
  backend?: string;
  minIsolation?: 'user-kernel' | 'emulated-vm' | 'hardware-vm';
  cpus?: number;
  memoryMiB?: number;
  diskMiB?: number;
  pids?: number;
  /** As whom commands run. */
  user?: string;
  /**
   * Milliseconds without activity until it is paused (`id` given) or ended (`id` not given: nobody
   * could find it again). Half an hour if not given.
   */
  idleTimeout?: number;
  /** Milliseconds that it lives at most. No limit if not given. */
  timeout?: number;
  metadata?: Record<string, string>;
  network?: NetworkOptions;
  volumes?: { name: string; path: string }[];
  hostMounts?: HostMount[];
}

export interface TupperSandboxOptions
  extends Omit<MastraSandboxOptions, 'processes'>, ServerOptions, MachineOptions {
  /** A sandbox with this id is found again by whoever knows it, or made. Random if not given. */
  id?: string;
  /** Id of a sandbox of tupper to use instead of finding or making one. */
  sandboxId?: string;
  /** The name under which `snapshot()` keeps it, and that a new sandbox begins from. */
  checkpointName?: string;
  /** What a new sandbox begins from while nothing is kept as `checkpointName`. */
  seedCheckpointName?: string;
  instructions?: Instructions;
}
