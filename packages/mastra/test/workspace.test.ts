/** A workspace of Mastra with our sandbox, as the tools of an agent use it. */

import { createWorkspaceTools, Workspace } from '@mastra/core/workspace';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TupperSandbox } from '../src/index.js';

type Tool = { execute(input: unknown, context: unknown): Promise<string> };

describe('a workspace', () => {
  const workspace = new Workspace({ sandbox: new TupperSandbox() });
  let tools: Record<string, Tool>;
  const call = (name: string, input: unknown): Promise<string> => {
    const tool = tools[`mastra_workspace_${name}`];
    if (!tool) throw new Error(`no tool ${name}`);
    return tool.execute(input, { workspace });
  };
  beforeAll(async () => {
    tools = (await createWorkspaceTools(workspace)) as Record<string, Tool>;
  });
  afterAll(() => workspace.destroy());

  it('runs commands', async () => {
    expect(await call('execute_command', { command: 'echo hi' })).toBe('hi\n');
    const failed = await call('execute_command', { command: 'echo oops >&2; exit 3' });
    expect(failed).toContain('oops');
    expect(failed).toContain('Exit code: 3');
  });

  it('runs them in the background, and ends them', async () => {
    const command = 'echo up; exec sleep 600';
    const begun = await call('execute_command', { command, background: true });
    const pid = /PID: (\d+)/.exec(begun)?.[1];
    await expect
      .poll(() => call('get_process_output', { pid }), { timeout: 30_000 })
      .toContain('up');
    expect(await call('kill_process', { pid })).toContain(`${pid} has been killed`);
  });
});
