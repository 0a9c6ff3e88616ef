/** A server on TCP, as on another machine: with a key, and through its proxy. */

import { get, type IncomingMessage } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TupperSandbox } from '../src/index.js';
import { sandboxRules } from './rules/all.js';
import { maker, started } from './rules/maker.js';
import { serve, type Served } from './served.js';

let served: Served;
beforeAll(async () => {
  served = await serve();
});
afterAll(() => served.end());
const server = () => ({ url: served.url, apiKey: served.apiKey });

describe('a server at a URL', () => {
  const make = maker(server);

  it('wants a key, and the right one', async () => {
    expect(() => new TupperSandbox({ url: served.url })).toThrow('no key');
    const wrong = make({ apiKey: `e2b_${'0'.repeat(40)}` });
    await expect(wrong.start()).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
  });

  it('is never started for others', async () => {
    const nobody = make({ url: 'http://127.0.0.1:1' });
    await expect(nobody.start()).rejects.toMatchObject({ code: 'SERVER_UNREACHABLE' });
    expect(() => new TupperSandbox({ url: 'ftp://x' })).toThrow('not the URL');
  });

  it('has names for ports', async () => {
    const sandbox = await started(make);
    await sandbox.processes.spawn('cd /tmp && echo hello > a && exec python3 -m http.server 8000');
    const url = await sandbox.networking.getPortUrl(8000);
    const { port } = new URL(served.url);
    expect(url).toBe(`http://8000-${sandbox.sandboxId}.localhost:${port}`);
    await expect.poll(() => textAt(`${url}/a`, port), { timeout: 30_000 }).toBe('hello\n');
  });

  it('shares no directory of its machine with others', async () => {
    const sandbox = make({ hostMounts: [{ hostPath: '/tmp', path: '/mnt' }] });
    await expect(sandbox.start()).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });

  sandboxRules(server);
});

/** Node's resolver does not know that every name under `localhost` is this machine; browsers do. */
function textAt(url: string, port: string): Promise<string> {
  const { hostname, pathname } = new URL(url);
  const headers = { Host: `${hostname}:${port}` };
  return new Promise((resolve, reject) => {
    const take = (reply: IncomingMessage) => {
      const chunks: string[] = [];
      reply.on('data', chunk => chunks.push(String(chunk)));
      reply.on('end', () => resolve(chunks.join('')));
    };
    get({ host: '127.0.0.1', port, path: pathname, headers }, take).on('error', reject);
  });
}
