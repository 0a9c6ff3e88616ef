/** The agent inside a sandbox, which speaks E2B's envd protocol, reached through the server. */

import type { Access } from './api.js';
import { envelope, messages } from './envelopes.js';
import { errorFrom, hasCode } from './errors.js';
import { parsed, textOf, type Transport } from './http.js';
import { childOf, fieldsOf, listOf, numberIn, textIn, type Fields } from './json.js';

const ENVD_PORT = '49983';
/** The agent says that it lives this often, in seconds; a stream silent for thrice that is broken. */
const ALIVE_S = 15;

/** A program to start. */
export interface Start {
  argv: [string, ...string[]];
  env: Record<string, string>;
  cwd: string | undefined;
  /** Whether it gets input; else it reads an end at once. */
  hasInput: boolean;
  /** The agent ends it, with all that it started, after so many milliseconds. */
  timeout: number | undefined;
}

/** A process that the agent started and that still runs. */
export interface Running {
  pid: number;
  command: string;
}

/** How many bytes of each output we have. */
export interface Offsets {
  stdout: number;
  stderr: number;
}

export class Agent {
  readonly #transport: Transport;
  readonly #headers: Record<string, string>;

  /**
   * @param user - as whom commands run and files are written; the sandbox's own if not given.
   */
  constructor(transport: Transport, access: Access, user: string | undefined) {
    this.#transport = transport;
    this.#headers = {
      'E2b-Sandbox-Id': access.sandboxId,
      'E2b-Sandbox-Port': ENVD_PORT,
      'X-Access-Token': access.token,
      ...(user !== undefined && {
        Authorization: `Basic ${Buffer.from(`${user}:`).toString('base64')}`,
      }),
    };
  }

  /** Start a program: the events of its life. */
  start(program: Start): AsyncGenerator<Fields, void> {
    const [cmd, ...args] = program.argv;
    const process = { cmd, args, envs: program.env, ...(program.cwd && { cwd: program.cwd }) };
    const body = { process, stdin: program.hasInput };
    const limit = program.timeout === undefined ? {} : timeLimit(program.timeout);
    return this.#stream('Start', body, limit);
  }

  /** The events of a program that runs already, from where we are in its output. */
  attach(pid: number, have: Offsets): AsyncGenerator<Fields, void> {
    return this.#stream('Connect', { process: { pid }, tupper: have }, {});
  }

  async running(): Promise<Running[]> {
    const reply = await this.#ask('List', {});
    return listOf(reply['processes'] ?? [], 'processes').map(one => ({
      pid: numberIn(one, 'pid') ?? 0,
      command: commandOf(childOf(one, 'config')),
    }));
  }

  async send(pid: number, data: string): Promise<void> {
    const stdin = Buffer.from(data, 'utf8').toString('base64');
    await this.#ask('SendInput', { process: { pid }, input: { stdin } });
  }

  async closeInput(pid: number): Promise<void> {
    await this.#ask('CloseStdin', { process: { pid } });
  }

  /** End a process with all that it started. Whether it was there. */
  async kill(pid: number): Promise<boolean> {
    try {
      await this.#ask('SendSignal', { process: { pid }, signal: 'SIGNAL_SIGKILL' });
      return true;
    } catch (error) {
      if (hasCode(error, 'NOT_FOUND')) return false;
      throw error;
    }
  }

  /** Write a file; directories in between are made. */
  async write(path: string, content: string | Buffer, signal?: AbortSignal): Promise<void> {
    const headers = { ...this.#headers, 'Content-Type': 'application/octet-stream' };
    const query = `path=${encodeURIComponent(path)}`;
    const ask = { method: 'POST', path: `/files?${query}`, headers, body: content, signal };
    await this.#transport.json(ask);
  }

  async #ask(call: string, body: Fields): Promise<Fields> {
    const headers = { ...this.#headers, 'Content-Type': 'application/json' };
    const ask = { method: 'POST', path: `/process.Process/${call}`, headers };
    const { value } = await this.#transport.json({ ...ask, body: JSON.stringify(body) });
    return fieldsOf(value, `the answer to ${call}`);
  }

  async *#stream(
    call: string,
    body: Fields,
    limit: Record<string, string>,
  ): AsyncGenerator<Fields, void> {
    const reply = await this.#transport.send({
      method: 'POST',
      path: `/process.Process/${call}`,
      headers: {
        ...this.#headers,
        ...limit,
        'Content-Type': 'application/connect+json',
        'Connect-Protocol-Version': '1',
        'Keepalive-Ping-Interval': String(ALIVE_S),
      },
      body: envelope(body),
      silence: ALIVE_S * 3000,
    });
    try {
      if (reply.statusCode !== 200) {
        throw errorFrom(reply.statusCode ?? 0, parsed(await textOf(reply)));
      }
      for await (const message of messages(reply)) yield childOf(message, 'event');
    } finally {
      reply.destroy();
    }
  }
}

function timeLimit(milliseconds: number): Record<string, string> {
  return { 'Connect-Timeout-Ms': String(Math.max(1, Math.ceil(milliseconds))) };
}

/** What was to be run: the text for the shell where it was one. */
function commandOf(config: Fields): string {
  const args = Array.isArray(config['args']) ? config['args'].map(String) : [];
  const text = args[0] === '-l' && args[1] === '-c' ? args[2] : undefined;
  return text ?? [textIn(config, 'cmd') ?? '', ...args].join(' ');
}
