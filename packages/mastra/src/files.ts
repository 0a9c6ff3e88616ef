/** Writing files into a sandbox. */

import {
  SandboxAbortError,
  validateSandboxFileMode,
  type SandboxFileInput,
} from '@mastra/core/workspace';
import { TupperError } from './errors.js';
import type { TupperSandbox } from './sandbox.js';

const AT_ONCE = 8;
/** Names of files for one call of chmod; a command line has an end. */
const NAMES_BYTES = 64 * 1024;

/** Write them, a few at once, then set the modes that were asked for. */
export async function writeAll(
  sandbox: TupperSandbox,
  files: SandboxFileInput[],
  signal: AbortSignal | undefined,
): Promise<void> {
  for (const file of files) if (file.mode !== undefined) validateSandboxFileMode(file.mode);
  if (signal?.aborted) throw new SandboxAbortError('writeFiles', signal.reason);
  const left = [...files];
  const write = async (): Promise<void> => {
    for (let file = left.shift(); file; file = left.shift()) {
      const { path, content } = file;
      await sandbox.withAgent(agent => agent.write(path, content, signal));
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, files.length) }, write));
  for (const [mode, paths] of byMode(files)) {
    for (const some of inPieces(paths)) await changeMode(sandbox, mode, some, signal);
  }
}

function byMode(files: SandboxFileInput[]): Map<number, string[]> {
  const found = new Map<number, string[]>();
  for (const { path, mode } of files) {
    if (mode !== undefined) found.set(mode, [...(found.get(mode) ?? []), path]);
  }
  return found;
}

function* inPieces(paths: string[]): Generator<string[]> {
  let piece: string[] = [];
  let size = 0;
  for (const path of paths) {
    size += Buffer.byteLength(path) * 4; // at worst, all of it are quotes
    if (piece.length > 0 && size > NAMES_BYTES) {
      yield piece;
      piece = [];
      size = Buffer.byteLength(path) * 4;
    }
    piece.push(path);
  }
  if (piece.length > 0) yield piece;
}

async function changeMode(
  sandbox: TupperSandbox,
  mode: number,
  paths: string[],
  abortSignal: AbortSignal | undefined,
): Promise<void> {
  const args = ['--', mode.toString(8).padStart(4, '0'), ...paths];
  const options = { cwd: '~', ...(abortSignal && { abortSignal }) };
  const done = await sandbox.executeCommand?.('chmod', args, options);
  if (done?.success) return;
  throw new TupperError(`chmod: ${done?.stderr.trim()}`, 'INVALID_ARGUMENT');
}
