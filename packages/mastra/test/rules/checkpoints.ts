import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { running, started, type Make } from './maker.js';

export function checkpointRules(make: Make): void {
  describe('checkpoints and clones', () => {
    it('clones without doing anything', async () => {
      const sandbox = make({ id: 'x', cpus: 1, env: { A: 'a', B: 'b' } });
      const clone = sandbox.clone({ env: { C: 'c' }, workingDirectory: '/tmp' });
      expect([clone.status, clone.sandboxId]).toEqual(['pending', undefined]);
      expect(clone.id).not.toBe(sandbox.id);
      expect(clone.getEnv()).toEqual({ C: 'c' });
      expect(sandbox.clone({ id: 'y' }).getEnv()).toEqual({ A: 'a', B: 'b' });
      expect(clone.workingDirectory).toBe('/tmp');
    });

    it('keeps nothing without a name', async () => {
      const sandbox = make();
      expect(sandbox.supportsCheckpoints).toBe(false);
      await sandbox.snapshot();
      expect(sandbox.status).toBe('pending');
    });

    it('begins where the checkpoint was, and each goes its own way', async () => {
      const checkpointName = `repo ${randomUUID()}`;
      const source = await started(make, { checkpointName });
      expect(source.supportsCheckpoints).toBe(true);
      await running(source)('echo old > ~/state');
      await source.snapshot();
      const server = await source.processes.spawn('exec sleep 600');
      await running(source)('echo warm > ~/state');
      await source.snapshot(); // takes the place of the first
      const clone = source.clone({ checkpointName });
      expect((await running(clone)('cat ~/state; echo mine > ~/state')).stdout).toBe('warm\n');
      expect(await clone.processes.kill(server.pid)).toBe(true); // memory is in it
      expect((await running(source)('cat ~/state')).stdout).toBe('warm\n');
      expect(server.exitCode).toBeUndefined();
      await clone._destroy();
      await source._destroy();
    });

    it('begins from the seed, and never writes to it', async () => {
      const seedCheckpointName = `seed-${randomUUID()}`;
      const seed = await started(make, { checkpointName: seedCheckpointName });
      await running(seed)('echo seed > ~/state');
      await seed.snapshot();
      const checkpointName = `own-${randomUUID()}`;
      const first = make({ checkpointName, seedCheckpointName });
      await running(first)('echo own >> ~/state');
      await first.snapshot();
      const second = make({ checkpointName, seedCheckpointName });
      expect((await running(second)('cat ~/state')).stdout).toBe('seed\nown\n');
      const third = make({ checkpointName: `none-${randomUUID()}`, seedCheckpointName });
      expect((await running(third)('cat ~/state')).stdout).toBe('seed\n');
    });
  });
}
