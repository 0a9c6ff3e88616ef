/** E2B's provider for Mastra, as published, with `tupper serve` in the place of E2B's cloud. */

import { randomUUID } from 'node:crypto';
import { E2BSandbox } from '@mastra/e2b';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { TupperSandbox } from '../src/index.js';
import { serve, type Served } from './served.js';

describe('@mastra/e2b, unmodified', () => {
  const made: E2BSandbox[] = [];
  let served: Served;

  const make = (options: ConstructorParameters<typeof E2BSandbox>[0] = {}) => {
    const sandbox = new E2BSandbox({ template: 'base', ...options });
    made.push(sandbox);
    return sandbox;
  };
  const run = (sandbox: E2BSandbox) => sandbox.executeCommand!.bind(sandbox);

  beforeAll(async () => {
    served = await serve();
    vi.stubEnv('E2B_API_KEY', served.apiKey);
    vi.stubEnv('E2B_API_URL', served.url);
    vi.stubEnv('E2B_SANDBOX_URL', served.url);
  });
  afterAll(async () => {
    await Promise.all(made.map(sandbox => sandbox._destroy()));
    vi.unstubAllEnvs();
    await served.end();
  });

  it('runs commands', async () => {
    const sandbox = make({ env: { WHO: 'you' } });
    await sandbox._start();
    expect(sandbox.status).toBe('running');
    const done = await run(sandbox)('printf', ['%s|', 'a b', "it's", '$HOME']);
    expect(done).toMatchObject({ success: true, stdout: "a b|it's|$HOME|" });
    expect(await run(sandbox)('echo oops >&2; exit 3')).toMatchObject({
      success: false,
      exitCode: 3,
      stderr: expect.stringContaining('oops'), // twice, with some versions
    });
    expect((await run(sandbox)('echo $WHO; pwd', [], { cwd: '/tmp' })).stdout).toBe('you\n/tmp\n');
    expect((await run(sandbox)('sleep 60', [], { timeout: 500 })).exitCode).not.toBe(0);
  });

  it('handles processes', async () => {
    const { processes } = make();
    const reader = await processes.spawn('head -1');
    await reader.sendStdin('hello\n');
    expect(await reader.wait()).toMatchObject({ exitCode: 0, stdout: 'hello\n' });
    const server = await processes.spawn('echo up; exec sleep 600');
    await expect.poll(() => server.stdout, { timeout: 30_000 }).toBe('up\n');
    const listed = await processes.list();
    expect(listed.some(one => one.pid === server.pid && one.running)).toBe(true);
    expect(await processes.kill(server.pid)).toBe(true);
    expect((await server.wait()).success).toBe(false);
  });

  it('writes files', async () => {
    const sandbox = make();
    await sandbox.writeFiles([{ path: '/tmp/deep/text', content: 'grüße' }]);
    expect((await run(sandbox)('cat /tmp/deep/text')).stdout).toBe('grüße');
  });

  it('stops and goes on, and is found by its id', async () => {
    const id = `e2b-${randomUUID()}`;
    const sandbox = make({ id });
    await run(sandbox)('echo kept > /tmp/kept');
    await sandbox._stop();
    await sandbox._start();
    expect((await run(sandbox)('cat /tmp/kept')).stdout).toBe('kept\n');
    const other = make({ id });
    expect((await run(other)('cat /tmp/kept')).stdout).toBe('kept\n');
    expect(other.e2b.sandboxId).toBe(sandbox.e2b.sandboxId);
  });

  it('is replaced when its sandbox has ended', async () => {
    const sandbox = make();
    await sandbox._start();
    await sandbox.e2b.kill();
    expect((await run(sandbox)('echo new')).stdout).toBe('new\n');
  });

  it('clones, and names ports', async () => {
    const sandbox = make().clone({ env: { A: 'a' } });
    made.push(sandbox);
    expect((await run(sandbox)('echo $A')).stdout).toBe('a\n');
    const url = await sandbox.networking.getPortUrl(8000);
    expect(url).toContain(`8000-${sandbox.e2b.sandboxId}.`);
    expect((await sandbox.getInfo()).status).toBe('running');
  });

  it('leaves its sandbox to our provider', async () => {
    const id = `moved-${randomUUID()}`;
    const before = make({ id });
    await run(before)('echo moved > ~/file');
    const after = new TupperSandbox({ id, url: served.url, apiKey: served.apiKey });
    expect(await after.start()).toEqual({ outcome: 'connected' });
    expect((await after.executeCommand!('cat ~/file')).stdout).toBe('moved\n');
  });
});
