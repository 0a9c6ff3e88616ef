/**
 * Where the server is.
 *
 * With a URL (`url`, or TUPPER_URL) it is some `tupper serve --listen`, and calls carry a key. Without
 * one it is the background process of this user, on a private unix socket that needs no key. The
 * `tupper` program starts that process if none runs, and knows where its address is kept.
 */

import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { TupperError, UNREACHABLE } from './errors.js';
import { childOf, fieldsOf, needText } from './json.js';

/** A unix socket, or an origin such as `http://127.0.0.1:3000`. */
export type Address = { socket: string } | { origin: URL };

/** Finds the server, and starts it where that is ours to do. */
export interface Locator {
  /** Whether the server is on this machine and takes us for its user. */
  readonly isLocal: boolean;
  /** The address; looked up anew if `again`, because nobody answered at the last one. */
  find(again?: boolean): Promise<Address>;
}

const START_MS = 60_000;
const run = promisify(execFile);

/** A server at a URL. Nobody but its owner can start it. */
export function atUrl(text: string): Locator {
  if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol)) {
    throw new TupperError(`${text} is not the URL of a server`, 'INVALID_ARGUMENT', {
      hint: 'such as http://127.0.0.1:3000',
    });
  }
  const origin = new URL(text);
  return { isLocal: false, find: () => Promise.resolve({ origin }) };
}

/**
 * The background process of this user.
 *
 * @param program - the `tupper` program: a name on PATH, or a path.
 */
export function background(program: string): Locator {
  let found: Promise<Address> | undefined;
  return {
    isLocal: true,
    find(again = false) {
      if (found === undefined || again) {
        const search = startAndFind(program);
        search.catch(() => (found = undefined));
        found = search;
      }
      return found;
    },
  };
}

async function startAndFind(program: string): Promise<Address> {
  await tupper(program, 'list', '--quiet'); // any call of the program starts it
  const shown = fieldsOf(JSON.parse(await tupper(program, 'config', '--json')), 'tupper config');
  const runtime = needText(childOf(shown, 'places'), 'runtime', 'tupper config');
  const line = await readFile(join(runtime, 'address'), 'utf8');
  return parseAddress(line.trim().split(' ', 1)[0] ?? '');
}

function parseAddress(text: string): Address {
  return text.startsWith('unix:')
    ? { socket: text.slice('unix:'.length) }
    : { origin: new URL(text) };
}

async function tupper(program: string, ...args: string[]): Promise<string> {
  // With a server of its own in the environment, the program would not start one here.
  const { TUPPER_URL: _, ...env } = process.env;
  try {
    return (await run(program, args, { env, timeout: START_MS })).stdout;
  } catch (cause) {
    const said = (cause as { stderr?: string }).stderr?.trim() ?? '';
    const isMissing = (cause as { code?: unknown }).code === 'ENOENT';
    throw new TupperError(
      isMissing ? `there is no program ${program}` : `${program} ${args[0]} failed: ${said}`,
      UNREACHABLE,
      {
        cause,
        hint: isMissing ? 'install tupper, or give `url` of a server' : 'see tupper doctor',
      },
    );
  }
}
