/** A `tupper serve` on TCP with a key, in the place of this user's background process. */

import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';

export interface Served {
  url: string;
  apiKey: string;
  end(): Promise<void>;
}

const PROGRAM = 'tupper';

/** Start it and make a key. */
export async function serve(): Promise<Served> {
  const server = spawn(PROGRAM, ['serve', '--listen', '127.0.0.1:0'], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  try {
    const url = await listening(server);
    const made = await promisify(execFile)(PROGRAM, ['key', 'create']);
    return { url, apiKey: made.stdout.trim(), end: () => ended(server) };
  } catch (error) {
    await ended(server);
    throw error;
  }
}

/** Its URL. What it says is read for as long as it lives: it must have somebody to say it to. */
function listening(server: ChildProcess): Promise<string> {
  let said = '';
  return new Promise((resolve, reject) => {
    server.stderr!.on('data', chunk => {
      said += String(chunk);
      const found = /http:\/\/\S+/.exec(said);
      if (found) resolve(found[0]);
    });
    server.once('error', reject);
    server.once('exit', () => reject(new Error(`tupper serve ended: ${said}`)));
  });
}

async function ended(server: ChildProcess): Promise<void> {
  if (server.exitCode !== null) return;
  const gone = once(server, 'exit');
  server.kill('SIGTERM');
  await gone;
}
