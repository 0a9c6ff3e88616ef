import { beforeAll, describe, expect, it } from 'vitest';
import type { TupperSandbox } from '../../src/index.js';
import { running, started, type Make } from './maker.js';

export function fileRules(make: Make): void {
  describe('writeFiles', () => {
    let sandbox: TupperSandbox;
    let run: ReturnType<typeof running>;
    beforeAll(async () => {
      sandbox = await started(make);
      run = running(sandbox);
    });

    it('writes text and bytes, and makes directories', async () => {
      const bytes = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
      await sandbox.writeFiles([
        { path: '/tmp/deep/er/text.txt', content: 'grüße\n' },
        { path: '/tmp/deep/bytes', content: bytes },
        { path: '/tmp/deep/empty', content: '' },
        { path: 'at home', content: 'home' },
      ]);
      expect((await run('cat /tmp/deep/er/text.txt')).stdout).toBe('grüße\n');
      const hex = await run("od -An -v -tx1 /tmp/deep/bytes | tr -d ' \\n'");
      expect(hex.stdout).toBe(bytes.toString('hex'));
      expect((await run('stat -c %s /tmp/deep/empty; cat "$HOME/at home"')).stdout).toBe('0\nhome');
    });

    it('replaces what is there', async () => {
      await sandbox.writeFiles([{ path: '/tmp/twice', content: 'a long first one' }]);
      await sandbox.writeFiles([{ path: '/tmp/twice', content: 'short' }]);
      expect((await run('cat /tmp/twice')).stdout).toBe('short');
    });

    it('sets the mode, whatever the name', async () => {
      const path = `/tmp/an 'odd' "name" $(x)`;
      await sandbox.writeFiles([
        { path, content: '#!/bin/sh\necho ran\n', mode: 0o750 },
        { path: '-rf', content: 'x', mode: 0o600 },
      ]);
      expect((await run('stat', ['-c', '%a', '--', path])).stdout).toBe('750\n');
      expect((await run('stat', ['-c', '%a', '--', '-rf'], { cwd: '~' })).stdout).toBe('600\n');
      expect((await run(`"${path.replace(/["$]/g, '\\$&')}"`)).stdout).toBe('ran\n');
    });

    it('refuses modes that are none before anything is written', async () => {
      for (const mode of [0, 0o1000, 4.5, -1]) {
        const files = [{ path: '/tmp/never', content: 'x', mode }];
        await expect(sandbox.writeFiles(files)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
      }
      expect((await run('test -e /tmp/never')).success).toBe(false);
    });

    it('writes many, and large ones', async () => {
      const many = Array.from({ length: 200 }, (_, n) => ({
        path: `/tmp/many/${n}`,
        content: `${n}\n`,
        mode: 0o640,
      }));
      await sandbox.writeFiles([
        ...many,
        { path: '/tmp/large', content: Buffer.alloc(20_000_000) },
      ]);
      const all = await run('cat /tmp/many/* | sort -n | md5sum; seq 0 199 | md5sum');
      const [written, wanted] = all.stdout.split('\n');
      expect(written).toBe(wanted);
      expect((await run('stat -c %s /tmp/large; stat -c %a /tmp/many/7')).stdout).toBe(
        '20000000\n640\n',
      );
    });

    it('refuses a place that is none', async () => {
      const refused = sandbox.writeFiles([{ path: '/tmp', content: 'x' }]);
      await expect(refused).rejects.toMatchObject({ name: 'TupperError' });
    });

    it('stops when it is told', async () => {
      const options = { abortSignal: AbortSignal.abort() };
      const stopped = sandbox.writeFiles([{ path: '/tmp/never', content: 'x' }], options);
      await expect(stopped).rejects.toMatchObject({ code: 'ABORTED' });
      expect((await run('test -e /tmp/never')).success).toBe(false);
    });
  });
}
