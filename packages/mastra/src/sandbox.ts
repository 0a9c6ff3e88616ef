/**
 * A sandbox of tupper as Mastra wants one.
 *
 * Who constructs one with an `id` gets the sandbox that has this id, paused or running, or a new one.
 * `stop` pauses it with all that runs in it, `destroy` ends it. One that ended by itself, because its
 * time was over, is replaced by a new one at the next call; the start hook hears `created` then.
 */

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RequestContext } from '@mastra/core/di';
import {
  MastraSandbox,
  SandboxNotReadyError,
  type ProviderStatus,
  type SandboxCloneOptions,
  type SandboxFileInput,
  type SandboxInfo,
  type SandboxNetworking,
  type SandboxStartOptions,
  type SandboxStartResult,
  type WriteFilesOptions,
} from '@mastra/core/workspace';
import { Agent } from './agent.js';
import { Api, type Access } from './api.js';
import { creation, ID_KEY, snapshotName } from './creation.js';
import { hasCode, isGone, LOST, TupperError } from './errors.js';
import { writeAll } from './files.js';
import { infoFrom } from './info.js';
import { defaultInstructions, instructionsFrom } from './instructions.js';
import type { TupperSandboxOptions } from './options.js';
import { TupperProcessManager } from './processes.js';
import { serverFrom, type Server } from './server.js';

/** How long somebody else may take to make a sandbox with the same id. */
const FIRST_MS = 60_000;
const RETRY_MS = 50;

export class TupperSandbox extends MastraSandbox {
  readonly id: string;
  readonly name = 'TupperSandbox';
  readonly provider = 'tupper';
  status: ProviderStatus = 'pending';
  declare readonly processes: TupperProcessManager;
  override readonly networking: SandboxNetworking;
  override readonly supportsCheckpoints: boolean;
  readonly #options: TupperSandboxOptions;
  readonly #server: Server;
  readonly #createdAt = new Date();
  #sandboxId: string | undefined;
  #access: Access | undefined;

  constructor(options: TupperSandboxOptions = {}) {
    super({ ...options, name: 'TupperSandbox', processes: new TupperProcessManager() });
    this.id = options.id ?? `tupper-${randomUUID()}`;
    this.#options = options;
    this.#server = serverFrom(options);
    this.#sandboxId = options.sandboxId;
    this.supportsCheckpoints = options.checkpointName !== undefined;
    this.networking = { getPortUrl: port => this.#portUrl(port) };
  }

  /** The id that tupper knows it by, for its CLI and SDKs; undefined before the first start. */
  get sandboxId(): string | undefined {
    return this.#sandboxId;
  }

  override async start(options: SandboxStartOptions = {}): Promise<SandboxStartResult> {
    const signal = options.abortSignal;
    const end = Date.now() + FIRST_MS;
    for (;;) {
      if (await this.#connect(signal)) return { outcome: 'connected' };
      try {
        await this.#create(signal);
        return { outcome: 'created' };
      } catch (error) {
        if (!hasCode(error, 'ALREADY_EXISTS') || Date.now() > end) throw error;
      }
      // Somebody else who knows the id was first, and theirs cannot be used yet.
      await sleep(RETRY_MS, undefined, { signal });
    }
  }

  override async stop(): Promise<void> {
    const id = this.#sandboxId;
    this.processes.forget();
    if (id === undefined) return;
    try {
      await this.#api.pause(id);
    } catch (error) {
      if (!isGone(error)) throw error;
    }
    this.#access = undefined;
  }

  override async destroy(): Promise<void> {
    this.processes.forget();
    try {
      if (this.#sandboxId !== undefined) await this.#api.kill(this.#sandboxId);
    } catch (error) {
      if (!isGone(error)) throw error;
    }
    this.#access = undefined;
  }

  /** Keep what it is now, with all that runs in it, as `checkpointName`; nothing without one. */
  override async snapshot(): Promise<void> {
    const name = this.#options.checkpointName;
    if (name === undefined) return;
    await this.ensureRunning();
    await this.#api.snapshot(this.#need().sandboxId, snapshotName(name));
  }

  /** A sibling with the same options. It has no life of its own before it is used. */
  clone(options: SandboxCloneOptions = {}): TupperSandbox {
    const { id: _id, sandboxId: _sandboxId, ...shared } = this.#options;
    const { idleTimeoutMinutes: minutes, actingUserId: _user, ...given } = options;
    const own = Object.entries(given).filter(([, value]) => value !== undefined);
    return new TupperSandbox({
      ...shared,
      ...Object.fromEntries(own),
      ...(minutes !== undefined && { idleTimeout: minutes * 60_000 }),
    });
  }

  /** Write files into it. Directories in between are made; a relative path begins in the home. */
  override async writeFiles(
    files: SandboxFileInput[],
    options: WriteFilesOptions = {},
  ): Promise<void> {
    await writeAll(this, files, options.abortSignal);
  }

  override async getInfo(): Promise<SandboxInfo> {
    const own = { id: this.id, name: this.name, provider: this.provider, status: this.status };
    return infoFrom(own, this.#createdAt, this.#api, this.#access && this.#sandboxId);
  }

  override getInstructions(options: { requestContext?: RequestContext } = {}): string {
    const own = defaultInstructions(this.workingDirectory, this.#options);
    return instructionsFrom(this.#options.instructions, own, options.requestContext);
  }

  /** @deprecated Look at `status`. */
  isReady(): boolean {
    return this.status === 'running';
  }

  /**
   * Use the agent of the running sandbox. If the sandbox has ended or was paused meanwhile, it is
   * started again, once.
   *
   * @internal
   */
  async withAgent<T>(use: (agent: Agent) => Promise<T>): Promise<T> {
    await this.ensureRunning();
    try {
      return await use(this.#agent());
    } catch (error) {
      if (this.status !== 'running' || !(await this.#isAway(error))) throw error;
    }
    this.#leave();
    await this.ensureRunning();
    return use(this.#agent());
  }

  get #api(): Api {
    return this.#server.api;
  }

  #agent(): Agent {
    return new Agent(this.#server.transport, this.#need(), this.#options.user);
  }

  #need(): Access {
    if (!this.#access) throw new SandboxNotReadyError(this.id);
    return this.#access;
  }

  /** Whether an error came because the sandbox is not there, or is paused. */
  async #isAway(error: unknown): Promise<boolean> {
    const id = this.#sandboxId;
    if (isGone(error) || id === undefined) return true;
    if (!hasCode(error, LOST, 'HTTP_502', 'HTTP_409', 'UNAVAILABLE')) return false;
    try {
      return (await this.#api.details(id)).state !== 'running';
    } catch (cause) {
      return isGone(cause);
    }
  }

  #enter(access: Access): void {
    this.#access = access;
    this.#sandboxId = access.sandboxId;
  }

  #leave(): void {
    this.status = 'stopped';
    this.#access = undefined;
    this.processes.forget();
  }

  async #create(signal: AbortSignal | undefined): Promise<void> {
    const isKnown = this.#options.id !== undefined;
    const body = creation(this.#options, this.id, isKnown, await this.#source(signal));
    this.#enter(await this.#api.create(body, signal));
  }

  /** Use the sandbox that is there. Whether there is one. */
  async #connect(signal: AbortSignal | undefined): Promise<boolean> {
    const { id, sandboxId, timeout } = this.#options;
    const found =
      this.#sandboxId ?? (id === undefined ? undefined : await this.#api.find(ID_KEY, id, signal));
    if (found === undefined) return false;
    try {
      const timeoutS = timeout === undefined ? undefined : timeout / 1000;
      this.#enter(await this.#api.connect(found, timeoutS, signal));
      return true;
    } catch (error) {
      if (!isGone(error) || sandboxId !== undefined) throw error;
    }
    const isOld = this.#sandboxId !== undefined;
    this.#sandboxId = undefined;
    return isOld ? this.#connect(signal) : false;
  }

  /** What a new one begins from: a checkpoint, or a template; undefined for an image. */
  async #source(signal: AbortSignal | undefined): Promise<string | undefined> {
    const { checkpointName, seedCheckpointName, template, image } = this.#options;
    for (const name of [checkpointName, seedCheckpointName]) {
      const kept = name === undefined ? [] : await this.#api.snapshots(snapshotName(name), signal);
      if (kept[0] !== undefined) return kept[0];
    }
    if (template !== undefined && image !== undefined) {
      throw new TupperError('give a template or an image, not both', 'INVALID_ARGUMENT');
    }
    return image === undefined ? (template ?? 'base') : undefined;
  }

  /** Where this machine reaches a port inside; null while it does not run. */
  async #portUrl(port: number): Promise<string | null> {
    if (this.status !== 'running' || !this.#access) return null;
    const { sandboxId, domain } = this.#access;
    if (!this.#server.transport.isLocal) return this.#server.hostUrl(port, sandboxId, domain);
    try {
      return `http://${await this.#api.publish(sandboxId, port)}`;
    } catch (error) {
      if (isGone(error)) return null;
      throw error;
    }
  }
}
