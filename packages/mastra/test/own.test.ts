/** The server of this user, on its private socket; started by the first call that needs it. */

import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import type { Address } from '../src/address.js';
import { serverFrom } from '../src/server.js';
import { sandboxRules } from './rules/all.js';
import { maker, running, started } from './rules/maker.js';

const own = () => ({});

describe('the server of this user', () => {
  const make = maker(own);

  it('is started when none runs, and finds its sandboxes again', async () => {
    const sandbox = await started(make);
    await running(sandbox)('echo kept > /tmp/kept');
    await endServer();
    expect((await running(sandbox)('cat /tmp/kept')).stdout).toBe('kept\n');
  });

  it('is attached to again when it went away under a command', async () => {
    const sandbox = await started(make);
    const handle = await sandbox.processes.spawn('echo one; read line; echo two');
    await expect.poll(() => handle.stdout).toBe('one\n');
    await endServer();
    await handle.sendStdin('\n');
    expect(await handle.wait()).toMatchObject({ success: true, stdout: 'one\ntwo\n' });
  });

  it('is not found without the program', async () => {
    const sandbox = make({ program: '/no/such/tupper' });
    await expect(sandbox.start()).rejects.toMatchObject({ code: 'SERVER_UNREACHABLE' });
  });

  it('publishes ports on this machine', async () => {
    const sandbox = await started(make);
    expect(await make().networking.getPortUrl(8000)).toBeNull();
    await sandbox.processes.spawn('cd /tmp && echo hello > a && exec python3 -m http.server 8000');
    const url = await sandbox.networking.getPortUrl(8000);
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(await sandbox.networking.getPortUrl(8000)).toBe(url);
    await expect.poll(() => textAt(`${url}/a`), { timeout: 30_000 }).toBe('hello\n');
  });

  sandboxRules(own);
});

async function textAt(url: string): Promise<string | undefined> {
  try {
    return await (await fetch(url)).text();
  } catch {
    return undefined; // nothing listens yet
  }
}

/** Whoever comes next starts another; sandboxes live on. */
async function endServer(): Promise<void> {
  const { transport } = serverFrom({});
  const path = '/tupper/v1/shutdown';
  const address = await transport.find();
  await transport.json({ method: 'POST', path, body: JSON.stringify({ force: true }) });
  await expect.poll(() => answers(address), { timeout: 30_000 }).toBe(false);
}

function answers(address: Address): Promise<boolean> {
  const path = 'socket' in address ? address.socket : '';
  return new Promise(resolve => {
    const connection = connect(path, () => resolve(true));
    connection.once('error', () => resolve(false));
    connection.once('connect', () => connection.destroy());
  });
}
