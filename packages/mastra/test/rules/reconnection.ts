import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { running, started, type Make } from './maker.js';

export function reconnectionRules(make: Make): void {
  describe('reconnection', () => {
    it('is the same over stop and start, processes and all', async () => {
      const sandbox = await started(make, { env: { WHO: 'me' } });
      const id = sandbox.sandboxId;
      await running(sandbox)('echo kept > /tmp/kept');
      const server = await sandbox.processes.spawn('exec sleep 600');
      const lost = expect(server.wait()).rejects.toThrow();
      await sandbox._stop();
      expect(sandbox.status).toBe('stopped');
      await lost;
      expect(await sandbox.start()).toEqual({ outcome: 'connected' });
      expect(sandbox.sandboxId).toBe(id);
      expect((await running(sandbox)('cat /tmp/kept; echo $WHO')).stdout).toBe('kept\nme\n');
      const again = await sandbox.processes.get(server.pid);
      expect(again?.command).toBe('exec sleep 600');
      expect(await again?.kill()).toBe(true);
    });

    it('is found by its id', async () => {
      const id = `Some id/${randomUUID()} &=ä`;
      const first = await started(make, { id });
      await running(first)('echo found > /tmp/found');
      const second = make({ id });
      expect(await second.start()).toEqual({ outcome: 'connected' });
      expect(second.sandboxId).toBe(first.sandboxId);
      await first._stop();
      const third = make({ id });
      expect((await running(third)('cat /tmp/found')).stdout).toBe('found\n');
      await third._destroy();
      const fourth = make({ id });
      expect(await fourth.start()).toEqual({ outcome: 'created' });
    });

    it('is made once, however many begin with its id', async () => {
      const id = `race-${randomUUID()}`;
      const all = await Promise.all([1, 2, 3, 4].map(() => started(make, { id })));
      expect(new Set(all.map(one => one.sandboxId)).size).toBe(1);
    });

    it('follows a process that somebody else started', async () => {
      const one = await started(make);
      const other = await started(make, { sandboxId: one.sandboxId! });
      const handle = await one.processes.spawn('echo before; read line; echo after $line');
      const listed = (await other.processes.list()).find(({ pid }) => pid === handle.pid);
      expect(listed).toMatchObject({ running: true, command: handle.command });
      const seen = await other.processes.get(handle.pid);
      await seen!.sendStdin('all\n');
      expect((await seen!.wait()).stdout).toBe('before\nafter all\n');
      expect((await handle.wait()).stdout).toBe('before\nafter all\n');
    });

    it('is replaced when it has ended', async () => {
      const outcomes: unknown[] = [];
      const sandbox = make({ onStart: ({ outcome }) => void outcomes.push(outcome) });
      await sandbox.start();
      const gone = make({ sandboxId: sandbox.sandboxId! });
      await gone.start();
      const handle = await sandbox.processes.spawn('exec sleep 600');
      const lost = expect(handle.wait()).rejects.toMatchObject({ code: 'SANDBOX_NOT_FOUND' });
      await gone._destroy();
      await lost;
      expect((await running(sandbox)('echo new')).stdout).toBe('new\n');
      expect(outcomes).toEqual(['created', 'created']);
    });

    it('goes on when it was paused by somebody else', async () => {
      const sandbox = await started(make);
      const other = await started(make, { sandboxId: sandbox.sandboxId! });
      await running(sandbox)('echo kept > /tmp/kept');
      await other._stop();
      expect((await running(sandbox)('cat /tmp/kept')).stdout).toBe('kept\n');
      expect(sandbox.sandboxId).toBe(other.sandboxId);
    });

    it('is paused when nobody has used it, if it can be found again', async () => {
      const id = `idle-${randomUUID()}`;
      const sandbox = await started(make, { id, idleTimeout: 1000 });
      await running(sandbox)('echo kept > /tmp/kept');
      await expect.poll(() => stateOf(sandbox), { timeout: 60_000 }).toBe('paused');
      expect((await running(sandbox)('cat /tmp/kept')).stdout).toBe('kept\n');
    });
  });
}

async function stateOf(sandbox: ReturnType<Make>): Promise<unknown> {
  return (await sandbox.getInfo()).metadata?.['state'];
}
