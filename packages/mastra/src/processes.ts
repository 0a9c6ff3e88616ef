/** The processes of a sandbox. */

import {
  SandboxProcessManager,
  type ProcessHandle,
  type ProcessInfo,
  type SpawnProcessOptions,
} from '@mastra/core/workspace';
import type { Start } from './agent.js';
import { hasCode } from './errors.js';
import { TupperProcessHandle } from './process.js';
import type { TupperSandbox } from './sandbox.js';

export class TupperProcessManager extends SandboxProcessManager<TupperSandbox> {
  override async spawn(command: string, options: SpawnProcessOptions = {}): Promise<ProcessHandle> {
    const program: Start = {
      argv: ['/bin/bash', '-l', '-c', command],
      env: definedIn({ ...this.env, ...options.env }),
      cwd: options.cwd ?? this.sandbox.workingDirectory,
      hasInput: options.stdinMode !== 'ignore',
      timeout: options.timeout,
    };
    const handle = await this.sandbox.withAgent(agent =>
      TupperProcessHandle.start(agent, program, options),
    );
    this._tracked.set(handle.pid, handle);
    return handle;
  }

  /** Those that were started here, and those that others started and that still run. */
  override async list(): Promise<ProcessInfo[]> {
    const ours = [...this._tracked.values()].map(infoOf);
    const running = await this.sandbox.withAgent(agent => agent.running());
    const others = running.filter(one => !this._tracked.has(String(one.pid)));
    return [
      ...ours,
      ...others.map(({ pid, command }) => ({ pid: String(pid), command, running: true })),
    ];
  }

  /** One that was started here, or one that others started and that still runs. */
  override async get(pid: string): Promise<ProcessHandle | undefined> {
    const ours = this._tracked.get(pid);
    if (ours || !/^[1-9]\d{0,9}$/.test(pid)) return ours;
    const running = await this.sandbox.withAgent(agent => agent.running());
    const found = running.find(one => String(one.pid) === pid);
    if (!found) return undefined;
    try {
      const handle = await this.sandbox.withAgent(agent =>
        TupperProcessHandle.attach(agent, found.pid),
      );
      handle.command = found.command;
      this._tracked.set(pid, handle);
      return handle;
    } catch (error) {
      if (hasCode(error, 'NOT_FOUND')) return undefined; // it ended between the two calls
      throw error;
    }
  }

  /** Forget what was started; the sandbox is another one now, with pids of its own. */
  forget(): void {
    this._tracked.clear();
    this._dismissed.clear();
  }
}

function infoOf(handle: ProcessHandle): ProcessInfo {
  const { pid, command, exitCode } = handle;
  return {
    pid,
    ...(command !== undefined && { command }),
    running: exitCode === undefined,
    ...(exitCode !== undefined && { exitCode }),
  };
}

function definedIn(env: Record<string, string | undefined>): Record<string, string> {
  const defined = Object.entries(env).filter(
    (pair): pair is [string, string] => pair[1] !== undefined,
  );
  return Object.fromEntries(defined);
}
