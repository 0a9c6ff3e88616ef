/**
 * What Mastra asks of every provider of sandboxes, as far as its interfaces say it, and what ours
 * promises on top.
 */

import { describe } from 'vitest';
import type { ServerOptions } from '../../src/index.js';
import { checkpointRules } from './checkpoints.js';
import { commandRules } from './commands.js';
import { fileRules } from './files.js';
import { lifecycleRules } from './lifecycle.js';
import { maker } from './maker.js';
import { processRules } from './processes.js';
import { reconnectionRules } from './reconnection.js';

/** @param server - where the server is, once the tests run. */
export function sandboxRules(server: () => ServerOptions): void {
  const rules = [
    commandRules,
    lifecycleRules,
    processRules,
    reconnectionRules,
    fileRules,
    checkpointRules,
  ];
  for (const rule of rules) describe('', () => rule(maker(server)));
}
