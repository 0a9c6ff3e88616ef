/**
 * The streams of the Connect protocol with JSON: envelopes of one byte of flags, four of length (big
 * endian) and a message. The flag 2 marks the last, which holds an error or nothing.
 */

import type { IncomingMessage } from 'node:http';
import { errorFrom, LOST, TupperError } from './errors.js';
import { childOf, fieldsOf, type Fields } from './json.js';

const HEAD = 5;
const LAST = 2;
const MAX_MESSAGE = 64 * 1024 * 1024;

/** One message as an envelope. */
export function envelope(message: unknown): Buffer {
  const body = Buffer.from(JSON.stringify(message), 'utf8');
  const head = Buffer.alloc(HEAD);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

/**
 * The messages of a stream.
 *
 * Throws the error of its last envelope, or LOST if it ends without one.
 */
export async function* messages(stream: IncomingMessage): AsyncGenerator<Fields, void> {
  for await (const { flags, message } of envelopes(stream)) {
    if ((flags & LAST) === 0) {
      yield message;
      continue;
    }
    const error = childOf(message, 'error');
    if ('code' in error) throw errorFrom(0, error);
    return;
  }
  throw new TupperError('the stream ended without its end', LOST);
}

async function* envelopes(
  stream: IncomingMessage,
): AsyncGenerator<{ flags: number; message: Fields }, void> {
  let have: Buffer = Buffer.alloc(0);
  for await (const chunk of chunksOf(stream)) {
    have = have.length === 0 ? chunk : Buffer.concat([have, chunk]);
    while (have.length >= HEAD) {
      const size = have.readUInt32BE(1);
      if (size > MAX_MESSAGE) throw new TupperError('a message is too large', 'BAD_REPLY');
      if (have.length < HEAD + size) break;
      const text = have.toString('utf8', HEAD, HEAD + size);
      const flags = have.readUInt8(0);
      have = have.subarray(HEAD + size);
      yield { flags, message: fieldsOf(JSON.parse(text), 'a message') };
    }
  }
}

async function* chunksOf(stream: IncomingMessage): AsyncGenerator<Buffer, void> {
  try {
    for await (const chunk of stream) yield chunk as Buffer;
  } catch (cause) {
    throw new TupperError('the connection broke', LOST, { cause });
  }
}
