import { once } from 'node:events';
import { beforeAll, describe, expect, it } from 'vitest';
import type { TupperProcessManager, TupperSandbox } from '../../src/index.js';
import { started, type Make } from './maker.js';

export function processRules(make: Make): void {
  describe('processes', () => {
    let sandbox: TupperSandbox;
    let processes: TupperProcessManager;
    beforeAll(async () => {
      sandbox = await started(make, { env: { LEVEL: 'sandbox', KEPT: 'yes' } });
      processes = sandbox.processes;
    });

    it('has a pid, output and an exit code', async () => {
      const handle = await processes.spawn('echo one; echo two >&2; exit 42');
      expect(handle.pid).toMatch(/^\d+$/);
      expect(await handle.wait()).toMatchObject({ success: false, exitCode: 42, stdout: 'one\n' });
      expect([handle.stdout, handle.stderr, handle.exitCode]).toEqual(['one\n', 'two\n', 42]);
    });

    it('has no exit code while it runs, and may be waited for twice', async () => {
      const handle = await processes.spawn('read line; exit 3');
      expect(handle.exitCode).toBeUndefined();
      await handle.sendStdin('go\n');
      const first = await handle.wait();
      expect(await handle.wait()).toEqual(first);
      expect(first.exitCode).toBe(3);
    });

    it('tells output to callbacks at the start and at the wait', async () => {
      const told: string[] = [];
      const handle = await processes.spawn('read line; echo out; echo err >&2', {
        onStdout: text => told.push(`spawn ${text}`),
      });
      const waiting = handle.wait({ onStderr: text => told.push(`wait ${text}`) });
      await handle.sendStdin('go\n');
      await waiting;
      expect(told.sort()).toEqual(['spawn out\n', 'wait err\n']);
    });

    it('is killed, with all that it started', async () => {
      const handle = await processes.spawn('sleep 301 & sleep 302 & echo up; wait');
      const [up] = (await once(handle.reader, 'data')) as [Buffer];
      expect(String(up)).toBe('up\n');
      expect(await handle.kill()).toBe(true);
      expect(await handle.wait()).toMatchObject({ success: false, killed: true, exitCode: 137 });
      const left = await sandbox.executeCommand!('pgrep -f "sleep 30[12]"');
      expect(left.stdout).toBe('');
    });

    it('cannot be killed after its end', async () => {
      const handle = await processes.spawn('true');
      await handle.wait();
      expect(await handle.kill()).toBe(false);
      expect(await processes.kill(handle.pid)).toBe(false);
      expect(await processes.kill('99999')).toBe(false);
    });

    it('reads what it is sent', async () => {
      const handle = await processes.spawn('head -1');
      await handle.sendStdin('hello ä\nmore\n');
      expect(await handle.wait()).toMatchObject({ success: true, stdout: 'hello ä\n' });
      await expect(handle.sendStdin('late')).rejects.toMatchObject({ code: 'PROCESS_ENDED' });
    });

    it('sees the end of its input', async () => {
      const handle = await processes.spawn('cat');
      await handle.sendStdin('all of it');
      await handle.closeStdin();
      expect(await handle.wait()).toMatchObject({ success: true, stdout: 'all of it' });
    });

    it('has no input if it shall not', async () => {
      const handle = await processes.spawn('cat', { stdinMode: 'ignore' });
      expect((await handle.wait()).success).toBe(true);
      await expect(handle.sendStdin('x')).rejects.toMatchObject({ code: 'NO_INPUT' });
    });

    it('can be piped', async () => {
      const handle = await processes.spawn('tr a-z A-Z');
      const text: string[] = [];
      handle.reader.on('data', chunk => text.push(String(chunk)));
      handle.writer.write('first ');
      handle.writer.end('second');
      await once(handle.reader, 'end');
      expect(text.join('')).toBe('FIRST SECOND');
    });

    it('is listed and found', async () => {
      const handle = await processes.spawn('exec sleep 303');
      const listed = (await processes.list()).find(one => one.pid === handle.pid);
      expect(listed).toEqual({ pid: handle.pid, command: 'exec sleep 303', running: true });
      expect(await processes.get(handle.pid)).toBe(handle);
      expect(await processes.get('999999')).toBeUndefined();
      expect(await processes.get('nonsense')).toBeUndefined();
      expect(await processes.kill(handle.pid)).toBe(true);
      expect(await processes.get(handle.pid)).toBeUndefined();
    });

    it('runs beside others', async () => {
      const handles = await Promise.all([1, 2, 3].map(n => processes.spawn(`echo ${n}`)));
      expect(new Set(handles.map(handle => handle.pid)).size).toBe(3);
      const all = await Promise.all(handles.map(handle => handle.wait()));
      expect(all.map(done => done.stdout)).toEqual(['1\n', '2\n', '3\n']);
    });

    it('has the environment of the sandbox, then its own', async () => {
      const handle = await processes.spawn('echo $LEVEL $KEPT', { env: { LEVEL: 'process' } });
      expect((await handle.wait()).stdout).toBe('process yes\n');
      sandbox.setEnv(({ KEPT: _, ...env }) => ({ ...env, NEW: 'new' }));
      const later = await processes.spawn('echo $LEVEL ${KEPT-none} $NEW');
      expect((await later.wait()).stdout).toBe('sandbox none new\n');
    });

    it('ends at its time limit', async () => {
      const handle = await processes.spawn('sleep 300', { timeout: 500 });
      expect(await handle.wait()).toMatchObject({ exitCode: 124, timedOut: true });
      expect(handle.exitCode).toBe(124);
    });
  });
}
