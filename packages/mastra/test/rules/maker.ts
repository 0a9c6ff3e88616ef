import { afterAll } from 'vitest';
import { TupperSandbox, type ServerOptions, type TupperSandboxOptions } from '../../src/index.js';

export type Make = (options?: TupperSandboxOptions) => TupperSandbox;

/** Makes sandboxes for one block of tests, and ends them after it. */
export function maker(server: () => ServerOptions): Make {
  const made: TupperSandbox[] = [];
  afterAll(async () => {
    await Promise.all(made.map(sandbox => sandbox._destroy()));
  });
  return (options = {}) => {
    const sandbox = new TupperSandbox({ ...server(), ...options });
    made.push(sandbox);
    return sandbox;
  };
}

/** One that runs, for tests that leave it running. */
export async function started(make: Make, options?: TupperSandboxOptions): Promise<TupperSandbox> {
  const sandbox = make(options);
  await sandbox.start();
  return sandbox;
}

/** Its commands; the type of Mastra says that a sandbox may have none. */
export function running(sandbox: TupperSandbox) {
  return sandbox.executeCommand!.bind(sandbox);
}
