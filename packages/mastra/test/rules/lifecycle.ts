import { describe, expect, it } from 'vitest';
import { running, started, type Make } from './maker.js';

export function lifecycleRules(make: Make): void {
  describe('lifecycle', () => {
    it('says what it is', () => {
      const one = make();
      const two = make();
      expect([one.name, one.provider, one.status]).toEqual(['TupperSandbox', 'tupper', 'pending']);
      expect(one.id).not.toBe(two.id);
    });

    it('starts once, however often it is asked', async () => {
      const sandbox = make();
      const all = await Promise.all([sandbox.start(), sandbox.start(), sandbox.start()]);
      expect(all).toEqual(Array(3).fill({ outcome: 'created' }));
      expect(await sandbox.start()).toEqual({ outcome: 'connected' });
      expect(sandbox.status).toBe('running');
      expect(sandbox.isReady()).toBe(true);
      expect(sandbox.sandboxId).toMatch(/^i[a-z0-9]{20}$/);
    });

    it('starts by itself when it is used', async () => {
      const sandbox = make();
      expect((await running(sandbox)('echo here')).stdout).toBe('here\n');
      expect(sandbox.status).toBe('running');
    });

    it('tells its hooks', async () => {
      const told: unknown[] = [];
      const sandbox = make({
        onStart: async ({ sandbox, outcome }) => {
          told.push(outcome, (await sandbox.executeCommand!('echo from the hook')).stdout);
        },
        onStop: () => void told.push('stop'),
        onDestroy: () => void told.push('destroy'),
      });
      await sandbox._start();
      await sandbox._stop();
      await sandbox._destroy();
      expect(told).toEqual(['created', 'from the hook\n', 'stop', 'destroy']);
    });

    it('describes itself', async () => {
      const sandbox = make({ cpus: 1, memoryMiB: 512, metadata: { who: 'test' } });
      const before = await sandbox.getInfo();
      expect(before).toMatchObject({ id: sandbox.id, status: 'pending', provider: 'tupper' });
      await sandbox.start();
      const info = await sandbox.getInfo();
      expect(info).toMatchObject({
        id: sandbox.id,
        name: sandbox.name,
        status: 'running',
        resources: { memoryMB: 512, cpuCores: 1 },
        metadata: { sandboxId: sandbox.sandboxId, template: 'base', isolation: 'user-kernel' },
      });
      expect(info.timeoutAt).toBeUndefined();
    });

    it('cannot be used after its end', async () => {
      const sandbox = await started(make);
      await sandbox._destroy();
      expect(sandbox.status).toBe('destroyed');
      const refused = running(sandbox)('true');
      await expect(refused).rejects.toMatchObject({ code: 'NOT_READY' });
      expect(await sandbox.networking.getPortUrl(80)).toBeNull();
    });

    it('is destroyed in vain without harm, and once only', async () => {
      const sandbox = await started(make);
      const other = make({ sandboxId: sandbox.sandboxId! });
      await other.start();
      await sandbox._destroy();
      await other._destroy();
      expect(other.status).toBe('destroyed');
    });

    it('refuses what cannot be', async () => {
      const nothing = make({ sandboxId: 'iaaaaaaaaaaaaaaaaaaaa' });
      await expect(nothing.start()).rejects.toMatchObject({ code: 'SANDBOX_NOT_FOUND' });
      const template = make({ template: 'no-such-template' });
      await expect(template.start()).rejects.toMatchObject({ code: 'TEMPLATE_NOT_FOUND' });
      expect(template.status).toBe('error');
      const both = make({ template: 'base', image: 'debian:12' });
      await expect(both.start()).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
      const strong = make({ minIsolation: 'hardware-vm', backend: 'gvisor' });
      await expect(strong.start()).rejects.toMatchObject({ name: 'TupperError' });
    });
  });
}
