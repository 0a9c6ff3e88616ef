/**
 * One request, one connection.
 *
 * No connection is kept: on a socket of this machine one costs nothing, and a kept one can close just
 * when the next request is on its way.
 */

import * as http from 'node:http';
import * as https from 'node:https';
import type { Address, Locator } from './address.js';
import { errorFrom, LOST, throwIfAborted, TupperError, UNREACHABLE } from './errors.js';

const MAX_JSON = 64 * 1024 * 1024;
/** Making a sandbox may pull an image. */
const DEFAULT_MS = 600_000;

export interface Ask {
  method: string;
  /** Path and query, encoded. */
  path: string;
  headers?: Record<string, string>;
  body?: string | Buffer;
  /** How long nothing may come, in milliseconds. */
  silence?: number;
  signal?: AbortSignal | undefined;
}

/** The way to one server. */
export class Transport {
  readonly #locator: Locator;

  constructor(locator: Locator) {
    this.#locator = locator;
  }

  get isLocal(): boolean {
    return this.#locator.isLocal;
  }

  find(): Promise<Address> {
    return this.#locator.find();
  }

  /** Send a request; its answer, whatever the status, when the head is there. */
  async send(ask: Ask): Promise<http.IncomingMessage> {
    throwIfAborted(ask.signal, ask.path);
    try {
      return await exchange(await this.#locator.find(), ask);
    } catch (error) {
      throwIfAborted(ask.signal, ask.path);
      // The background process leaves when it has nothing to do; it starts again.
      if (!this.#locator.isLocal || !isNobodyThere(error)) throw translated(error, ask);
    }
    try {
      return await exchange(await this.#locator.find(true), ask);
    } catch (error) {
      throw translated(error, ask);
    }
  }

  /** Send a request; what its answer says in JSON, undefined if it says nothing. */
  async json(ask: Ask): Promise<{ value: unknown; headers: http.IncomingHttpHeaders }> {
    const reply = await this.send(ask);
    const text = await textOf(reply);
    const value = parsed(text);
    const status = reply.statusCode ?? 0;
    if (status >= 400) throw errorFrom(status, value);
    return { value, headers: reply.headers };
  }
}

function exchange(address: Address, ask: Ask): Promise<http.IncomingMessage> {
  const target =
    'socket' in address
      ? { socketPath: address.socket, host: 'tupper' }
      : { host: hostOf(address.origin), port: address.origin.port };
  const isTls = 'origin' in address && address.origin.protocol === 'https:';
  const body = ask.body === undefined ? undefined : Buffer.from(ask.body);
  return new Promise((resolve, reject) => {
    const request = (isTls ? https : http).request({
      ...target,
      agent: false,
      method: ask.method,
      path: ask.path,
      headers: { ...ask.headers, ...(body && { 'Content-Length': body.length }) },
      ...(ask.signal && { signal: ask.signal }),
    });
    const silence = ask.silence ?? DEFAULT_MS;
    request.setTimeout(silence, () =>
      request.destroy(new Error(`nothing came for ${silence / 1000} s`)),
    );
    request.once('response', resolve);
    request.on('error', reject);
    request.end(body);
  });
}

/** The literal of an IPv6 address has brackets in a URL only. */
function hostOf(origin: URL): string {
  return origin.hostname.replace(/^\[(.*)\]$/, '$1');
}

function isNobodyThere(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code;
  return code === 'ECONNREFUSED' || code === 'ENOENT';
}

function translated(cause: unknown, ask: Ask): unknown {
  if (cause instanceof TupperError) return cause;
  const said = cause instanceof Error ? cause.message : String(cause);
  const code = isNobodyThere(cause) ? UNREACHABLE : LOST;
  return new TupperError(`${ask.method} ${ask.path.split('?', 1)[0]}: ${said}`, code, { cause });
}

/** The whole of an answer as text. */
export async function textOf(reply: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of reply) {
      chunks.push(chunk as Buffer);
      size += (chunk as Buffer).length;
      if (size > MAX_JSON) throw new TupperError('the answer is too large', 'BAD_REPLY');
    }
  } catch (cause) {
    if (cause instanceof TupperError) throw cause;
    throw new TupperError('the answer broke off', LOST, { cause });
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** JSON; text that is none is kept as text, for an error's message. */
export function parsed(text: string): unknown {
  if (text === '') return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return { message: text.slice(0, 500) };
  }
}
