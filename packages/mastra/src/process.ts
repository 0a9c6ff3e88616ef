/**
 * A process in a sandbox.
 *
 * Its events are read from its start to its end, whether somebody waits or not. A connection that
 * breaks while the sandbox lives is made again, from the byte where it broke.
 */

import { StringDecoder } from 'node:string_decoder';
import {
  ProcessHandle,
  type CommandResult,
  type SpawnProcessOptions,
} from '@mastra/core/workspace';
import type { Agent, Offsets, Start } from './agent.js';
import { hasCode, LOST, TupperError } from './errors.js';
import { childOf, numberIn, textIn, type Fields } from './json.js';

/** What a shell and timeout(1) say of a command whose time was over. */
const TIMED_OUT = 124;
const SIGNALLED = 128;
const SIGKILL = 9;
const ATTEMPTS = 3;

type Output = 'stdout' | 'stderr';

/** How a process ended. */
interface End {
  exitCode: number;
  timedOut: boolean;
  killed: boolean;
}

export class TupperProcessHandle extends ProcessHandle {
  readonly pid: string;
  exitCode: number | undefined;
  readonly #agent: Agent;
  readonly #hasInput: boolean;
  readonly #began = Date.now();
  readonly #offsets: Offsets = { stdout: 0, stderr: 0 };
  readonly #decoders = { stdout: new StringDecoder('utf8'), stderr: new StringDecoder('utf8') };
  readonly #result: Promise<CommandResult>;

  private constructor(
    agent: Agent,
    pid: number,
    events: AsyncGenerator<Fields, void>,
    options: SpawnProcessOptions,
  ) {
    super(options);
    this.#agent = agent;
    this.pid = String(pid);
    this.#hasInput = options.stdinMode !== 'ignore';
    this.#result = this.#follow(pid, events);
    this.#result.catch(() => {}); // said to whoever waits; nobody has to
  }

  /** Start a program. */
  static start(agent: Agent, program: Start, options: SpawnProcessOptions) {
    return TupperProcessHandle.#open(agent, agent.start(program), options);
  }

  /** Attach to a program that somebody started; what is still kept of its output comes, too. */
  static attach(agent: Agent, pid: number) {
    return TupperProcessHandle.#open(agent, agent.attach(pid, { stdout: 0, stderr: 0 }), {});
  }

  static async #open(
    agent: Agent,
    events: AsyncGenerator<Fields, void>,
    options: SpawnProcessOptions,
  ): Promise<TupperProcessHandle> {
    const { value } = await events.next();
    const pid = numberIn(childOf(value ?? {}, 'start'), 'pid');
    if (pid === undefined) throw new TupperError('a process did not start', 'BAD_REPLY');
    return new TupperProcessHandle(agent, pid, events, options);
  }

  override wait(): Promise<CommandResult> {
    return this.#result;
  }

  async kill(): Promise<boolean> {
    if (this.exitCode !== undefined) return false;
    return this.#agent.kill(Number(this.pid));
  }

  async sendStdin(data: string): Promise<void> {
    this.#needInput();
    await this.#agent.send(Number(this.pid), data);
  }

  override async closeStdin(): Promise<void> {
    this.#needInput();
    await this.#agent.closeInput(Number(this.pid));
  }

  #needInput(): void {
    if (!this.#hasInput) throw new TupperError(`process ${this.pid} has no input`, 'NO_INPUT');
    if (this.exitCode === undefined) return;
    throw new TupperError(`process ${this.pid} has ended`, 'PROCESS_ENDED');
  }

  async #follow(pid: number, events: AsyncGenerator<Fields, void>): Promise<CommandResult> {
    try {
      const end = await this.#readToEnd(pid, events);
      this.exitCode = end.exitCode;
      return this.#resultOf(end);
    } catch (error) {
      this.exitCode = -1; // it is not known, and nobody will learn it
      throw error;
    }
  }

  async #readToEnd(pid: number, events: AsyncGenerator<Fields, void>): Promise<End> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        const end = await this.#read(events);
        if (end) return end;
        throw new TupperError('the stream of a process ended without its end', LOST);
      } catch (error) {
        if (hasCode(error, 'DEADLINE_EXCEEDED')) return timedOut();
        if (attempt === ATTEMPTS || !hasCode(error, LOST)) throw error;
      }
      events = this.#agent.attach(pid, { ...this.#offsets });
    }
  }

  async #read(events: AsyncGenerator<Fields, void>): Promise<End | undefined> {
    let end: End | undefined;
    for await (const event of events) {
      if ('data' in event) this.#take(childOf(event, 'data'));
      if ('gap' in event) this.#skip(childOf(event, 'gap'));
      if ('end' in event) end = endOf(childOf(event, 'end'));
    }
    return end;
  }

  #take(data: Fields): void {
    for (const output of ['stdout', 'stderr'] as const) {
      const text = textIn(data, output);
      if (text === undefined) continue;
      const bytes = Buffer.from(text, 'base64');
      this.#offsets[output] = (numberIn(data, 'offset') ?? this.#offsets[output]) + bytes.length;
      this.#emit(output, this.#decoders[output].write(bytes));
    }
  }

  /** Output that the agent could not keep for us. */
  #skip(gap: Fields): void {
    const output = textIn(gap, 'stream');
    if (output !== 'stdout' && output !== 'stderr') return;
    this.#offsets[output] += numberIn(gap, 'bytes') ?? 0;
  }

  #emit(output: Output, text: string): void {
    if (text === '') return;
    if (output === 'stdout') this.emitStdout(text);
    else this.emitStderr(text);
  }

  #resultOf(end: End): CommandResult {
    this.#emit('stdout', this.#decoders.stdout.end());
    this.#emit('stderr', this.#decoders.stderr.end());
    return {
      ...end,
      success: end.exitCode === 0,
      stdout: this.stdout,
      stderr: this.stderr,
      executionTimeMs: Date.now() - this.#began,
    };
  }
}

/** As a shell says it: 128 and the signal's number for one that a signal ended. */
function endOf(end: Fields): End {
  if (textIn(end, 'limit') === 'time') return timedOut();
  const code = numberIn(end, 'exitCode') ?? 0;
  if (end['exited'] === true) return { exitCode: code, timedOut: false, killed: false };
  const signal = numberIn(end, 'signal') ?? SIGKILL;
  return { exitCode: SIGNALLED + signal, timedOut: false, killed: true };
}

function timedOut(): End {
  return { exitCode: TIMED_OUT, timedOut: true, killed: true };
}
