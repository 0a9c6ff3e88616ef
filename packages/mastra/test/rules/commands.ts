import { beforeAll, describe, expect, it } from 'vitest';
import type { TupperSandbox } from '../../src/index.js';
import { running, started, type Make } from './maker.js';

export function commandRules(make: Make): void {
  describe('commands', () => {
    let sandbox: TupperSandbox;
    let run: ReturnType<typeof running>;
    beforeAll(async () => {
      sandbox = await started(make);
      run = running(sandbox);
    });

    it('gives exactly what was said', async () => {
      const done = await run('echo', ['hello', 'world']);
      expect(done).toMatchObject({ success: true, exitCode: 0, stdout: 'hello world\n' });
      expect(done.executionTimeMs).toBeGreaterThanOrEqual(0);
    });

    it('keeps each argument one argument', async () => {
      const args = ['a b', '', '$HOME', "it's", '"', '*', 'ä€😀', 'x\ny', '-n'];
      const done = await run('printf', ['<%s>', ...args]);
      expect(done.stdout).toBe(args.map(arg => `<${arg}>`).join(''));
    });

    it('keeps the two outputs apart', async () => {
      const done = await run('echo one; echo two >&2');
      expect(done).toMatchObject({ stdout: 'one\n', stderr: 'two\n' });
    });

    it('takes a failure for a result', async () => {
      expect(await run('exit 1')).toMatchObject({ success: false, exitCode: 1 });
      expect(await run('no-such-program')).toMatchObject({ success: false, exitCode: 127 });
    });

    it('says 128 and the number of a signal', async () => {
      expect(await run('kill -TERM $$')).toMatchObject({ success: false, exitCode: 143 });
    });

    it('sets variables of the environment', async () => {
      const env = { ONE: '1', TWO: 'two words', EMPTY: '', UNSET: undefined };
      const done = await run('echo "$ONE|$TWO|${EMPTY-none}|${UNSET-none}"', [], { env });
      expect(done.stdout).toBe('1|two words||none\n');
    });

    it('runs where it is told', async () => {
      expect((await run('pwd', [], { cwd: '/tmp' })).stdout).toBe('/tmp\n');
    });

    it('refuses a directory that does not exist', async () => {
      const refused = run('pwd', [], { cwd: '/no/such/place' });
      await expect(refused).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    });

    it('ends what takes too long, without an exception', async () => {
      const done = await run('echo begun; sleep 60', [], { timeout: 1000 });
      expect(done).toMatchObject({ success: false, timedOut: true, killed: true, exitCode: 124 });
    });

    it('ends what the caller gives up', async () => {
      const stop = new AbortController();
      const done = await run('echo begun; exec sleep 60', [], {
        abortSignal: stop.signal,
        onStdout: () => stop.abort(),
      });
      expect(done).toMatchObject({
        success: false,
        killed: true,
        exitCode: 137,
        stdout: 'begun\n',
      });
    });

    it('runs several at once, each with its own environment', async () => {
      const words = ['one', 'two', 'three'];
      const all = await Promise.all(words.map(WORD => run('echo $WORD', [], { env: { WORD } })));
      expect(all.map(done => done.stdout)).toEqual(words.map(word => `${word}\n`));
      expect((await run('echo ${WORD-none}')).stdout).toBe('none\n');
    });

    it('tells output as it comes', async () => {
      const out: string[] = [];
      const err: string[] = [];
      await run('echo one; echo two >&2', [], {
        onStdout: text => out.push(text),
        onStderr: text => err.push(text),
      });
      expect([out.join(''), err.join('')]).toEqual(['one\n', 'two\n']);
    });

    it('gives input an end at once', async () => {
      expect((await run('cat')).success).toBe(true);
    });

    it('loses nothing of a large output', async () => {
      const done = await run('seq 1 300000');
      expect(done.stdout.length).toBe(1988895);
      expect(done.stdout.endsWith('\n299999\n300000\n')).toBe(true);
    });

    it('keeps the newest of an output with a bound', async () => {
      const done = await run('seq 1 1000', [], { maxRetainedBytes: 10 });
      expect(done).toMatchObject({ stdout: '\n999\n1000\n', stdoutTruncated: true });
    });

    it('never splits a character, and marks bytes that are none', async () => {
      const long = await run(`python3 -c "print('€' * 100000, end='')"`);
      expect(long.stdout).toBe('€'.repeat(100000));
      expect((await run(`printf 'a\\xffb\\xe2'`)).stdout).toBe('a\ufffdb\ufffd');
    });

    it('does not wait for what was left in the background', async () => {
      const done = await run('sleep 600 & echo done');
      expect(done).toMatchObject({ success: true, stdout: 'done\n' });
    });
  });
}
