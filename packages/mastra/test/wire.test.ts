/** Servers that misbehave. No sandbox, no tupper. */

import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { afterEach, describe, expect, it } from 'vitest';
import { envelope } from '../src/envelopes.js';
import { TupperSandbox } from '../src/index.js';

const SANDBOX = { sandboxID: 'iaaaaaaaaaaaaaaaaaaaa', envdAccessToken: 'token', state: 'running' };
const STREAM = { 'Content-Type': 'application/connect+json' };
const START = envelope({ event: { start: { pid: 7 } } });
const END = Buffer.concat([
  envelope({ event: { end: { exited: true, status: 'exit status 0' } } }),
  Buffer.from([2, 0, 0, 0, 2, 0x7b, 0x7d]),
]);

const data = (text: string, offset: number) =>
  envelope({ event: { data: { stdout: Buffer.from(text).toString('base64'), offset } } });

describe('a server that misbehaves', () => {
  let server: Server | undefined;
  afterEach(() => server?.close());

  /** A sandbox whose server makes one, and answers everything else as it is told. */
  async function against(answer: RequestListener): Promise<TupperSandbox> {
    server = createServer((request, reply) => {
      if (request.url === '/v2/sandboxes') {
        reply.writeHead(201, { 'Content-Type': 'application/json' });
        reply.end(JSON.stringify(SANDBOX));
      } else answer(request, reply);
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    return new TupperSandbox({ url: `http://127.0.0.1:${port}`, apiKey: 'e2b_0' });
  }

  it('is attached to again from the byte where the stream broke', async () => {
    const asked: string[] = [];
    const sandbox = await against(async (request, reply) => {
      const body = await bodyOf(request);
      asked.push(`${request.url} ${body.subarray(5).toString()}`);
      reply.writeHead(200, STREAM);
      if (request.url?.endsWith('/Start')) {
        reply.write(Buffer.concat([START, data('one ', 0)]), () => reply.destroy());
      } else reply.end(Buffer.concat([START, data('two', 4), END]));
    });
    expect((await sandbox.executeCommand!('x')).stdout).toBe('one two');
    expect(asked[1]).toBe(
      '/process.Process/Connect {"process":{"pid":7},"tupper":{"stdout":4,"stderr":0}}',
    );
  });

  it('is given up after some times', async () => {
    let count = 0;
    const sandbox = await against((request, reply) => {
      if (!request.url?.startsWith('/process')) return void reply.end(JSON.stringify(DETAIL));
      count += 1;
      reply.writeHead(200, STREAM).write(START, () => reply.destroy());
    });
    const handle = await sandbox.processes.spawn('x');
    await expect(handle.wait()).rejects.toMatchObject({ code: 'CONNECTION_LOST' });
    expect([handle.exitCode, count]).toEqual([-1, 3]);
  });

  it('does not see the key of the server go to the guest', async () => {
    let seen: unknown;
    const sandbox = await against((request, reply) => {
      seen = request.headers;
      reply.writeHead(200, STREAM).end(Buffer.concat([START, END]));
    });
    await sandbox.executeCommand!('x');
    expect(seen).toMatchObject({ 'x-access-token': 'token' });
    expect(seen).not.toHaveProperty('x-api-key');
  });

  it.each([
    ['no JSON', '{', 'BAD_REPLY'],
    ['a list', '[]', 'BAD_REPLY'],
    ['nothing at all', '', 'BAD_REPLY'],
    ['no token', '{"sandboxID": "i"}', 'BAD_REPLY'],
  ])('answers create with %s', async (_, text, code) => {
    server = createServer((_request, reply) => void reply.end(text)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const sandbox = new TupperSandbox({ url: `http://127.0.0.1:${port}`, apiKey: 'e2b_0' });
    await expect(sandbox.start()).rejects.toMatchObject({ code });
    expect(sandbox.status).toBe('error');
  });

  it.each([
    ['a length without end', Buffer.from([0, 255, 255, 255, 255])],
    ['no JSON', Buffer.from([0, 0, 0, 0, 1, 0x7b])],
    ['no pid', envelope({ event: { start: {} } })],
    ['nothing', Buffer.alloc(0)],
  ])('begins a stream with %s', async (_, bytes) => {
    const sandbox = await against((request, reply) => {
      if (!request.url?.startsWith('/process')) return void reply.end(JSON.stringify(DETAIL));
      reply.writeHead(200, STREAM).end(bytes);
    });
    await expect(sandbox.executeCommand!('x')).rejects.toThrow();
  });

  it('says what is wrong in words of its own', async () => {
    const sandbox = await against((_request, reply) => {
      reply.writeHead(501).end('{"message": "no such thing", "error_code": "unsupported"}');
    });
    await expect(sandbox.executeCommand!('x')).rejects.toMatchObject({
      name: 'SandboxUnsupportedFeatureError',
      message: 'no such thing',
    });
  });
});

const DETAIL = { ...SANDBOX, startedAt: '2026-01-01T00:00:00Z' };

async function bodyOf(request: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}
