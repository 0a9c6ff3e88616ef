/** What a model is told about its sandbox. */

import type { RequestContext } from '@mastra/core/di';
import type { Instructions, MachineOptions } from './options.js';

/** Our own words. */
export function defaultInstructions(cwd: string | undefined, options: MachineOptions): string {
  const internet = options.network?.internet === false ? ' There is no internet.' : '';
  const mounts = options.hostMounts?.map(({ path, readOnly }) =>
    readOnly ? `${path} (read only)` : path,
  );
  const shared = mounts?.length ? ` Shared with the user's machine: ${mounts.join(', ')}.` : '';
  return (
    `Commands run in a Linux sandbox with bash, in ${cwd ?? 'the home directory'}.` +
    ` Files and background processes stay from one command to the next.${internet}${shared}`
  );
}

/** The words that the options ask for. */
export function instructionsFrom(
  wanted: Instructions | undefined,
  own: string,
  requestContext: RequestContext | undefined,
): string {
  if (wanted === undefined) return own;
  if (typeof wanted === 'string') return wanted;
  return wanted({ defaultInstructions: own, ...(requestContext && { requestContext }) });
}
