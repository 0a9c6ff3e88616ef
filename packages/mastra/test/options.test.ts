/** What a sandbox is made with. */

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { TupperSandbox, tupperSandboxProvider } from '../src/index.js';
import { serverFrom } from '../src/server.js';
import { maker, running, started } from './rules/maker.js';

describe('options', () => {
  const make = maker(() => ({}));

  it('bound the machine, the user, the directory and the network', async () => {
    const sandbox = await started(make, {
      memoryMiB: 300,
      user: 'root',
      workingDirectory: '/etc',
      network: { internet: false },
      template: 'minimal',
    });
    const run = running(sandbox);
    expect((await run('pwd; id -un')).stdout).toBe('/etc\nroot\n');
    const path = `/sandboxes/${sandbox.sandboxId}`;
    const { value } = await serverFrom({}).transport.json({ method: 'GET', path });
    expect(value).toMatchObject({
      memoryMB: 300,
      templateID: 'minimal',
      allowInternetAccess: false,
    });
    expect(sandbox.getInstructions()).toContain('in /etc. ');
    expect(sandbox.getInstructions()).toContain('no internet');
  });

  it('share directories of this machine', async () => {
    const place = await mkdtemp(join(tmpdir(), 'tupper-mastra-'));
    try {
      await writeFile(join(place, 'in'), 'from the host\n');
      const hostMounts = [
        { hostPath: place, path: '/project' },
        { hostPath: relative(process.cwd(), place), path: '/look', readOnly: true },
      ];
      const sandbox = await started(make, { hostMounts, user: 'root' });
      const done = await running(sandbox)('cat /look/in; echo back > /project/out; touch /look/x');
      expect(done).toMatchObject({ success: false, stdout: 'from the host\n' });
      expect(await readFile(join(place, 'out'), 'utf8')).toBe('back\n');
      expect(sandbox.getInstructions()).toContain('/look (read only)');
      await sandbox._destroy();
    } finally {
      await rm(place, { recursive: true });
    }
  });

  it('end it after a time, without a limit if there is none', async () => {
    const sandbox = await started(make, { timeout: 3_600_000 });
    const { createdAt, timeoutAt } = await sandbox.getInfo();
    expect(timeoutAt!.getTime() - createdAt.getTime()).toBeGreaterThan(3_500_000);
  });

  it('give the model other words', () => {
    const words = new TupperSandbox({ instructions: 'mine' });
    expect(words.getInstructions()).toBe('mine');
    const more = new TupperSandbox({ instructions: ({ defaultInstructions: own }) => `${own}!` });
    expect(more.getInstructions()).toMatch(/^Commands run in .*!$/);
  });

  it('can be stored, for the editor', async () => {
    const config: unknown = JSON.parse('{"template": "minimal", "cpus": 1, "env": {"A": "b"}}');
    const sandbox = await tupperSandboxProvider.createSandbox(config as object);
    expect(sandbox).toBeInstanceOf(TupperSandbox);
    expect((sandbox as TupperSandbox).getEnv()).toEqual({ A: 'b' });
    expect(Object.keys(tupperSandboxProvider.configSchema?.['properties'] as object)).toContain(
      'template',
    );
  });
});
