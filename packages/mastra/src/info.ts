/** What is known about a sandbox, in Mastra's words. */

import type { SandboxInfo } from '@mastra/core/workspace';
import type { Api, Details, Usage } from './api.js';
import { isGone } from './errors.js';

const MIB = 1024 * 1024;
type Own = Pick<SandboxInfo, 'id' | 'name' | 'provider' | 'status'>;

/**
 * @param createdAt - of our object, for as long as there is no sandbox.
 * @param sandboxId - of the sandbox, if there is one that can be asked.
 */
export async function infoFrom(
  own: Own,
  createdAt: Date,
  api: Api,
  sandboxId: string | undefined,
): Promise<SandboxInfo> {
  if (sandboxId === undefined) return { ...own, createdAt };
  try {
    const [details, usage] = await Promise.all([api.details(sandboxId), api.usage(sandboxId)]);
    return { ...own, ...described(details, usage) };
  } catch (error) {
    if (isGone(error)) return { ...own, createdAt };
    throw error;
  }
}

function described(details: Details, usage: Usage): Omit<SandboxInfo, keyof Own> {
  const { sandboxId, state, template, isolation, startedAt, endAt } = details;
  return {
    createdAt: startedAt,
    ...(endAt && { timeoutAt: endAt }),
    resources: {
      ...given('memoryMB', details.memoryMiB),
      ...given('cpuCores', details.cpus),
      ...given('diskMB', details.diskMiB),
      ...given('cpuPercent', usage.cpuPercent),
      ...given('memoryUsedMB', inMib(usage.memoryBytes)),
      ...given('diskUsedMB', inMib(usage.diskBytes)),
    },
    metadata: { sandboxId, state, template, ...isolation },
  };
}

function given<K extends string>(key: K, value: number | undefined): Partial<Record<K, number>> {
  return value === undefined ? {} : ({ [key]: value } as Record<K, number>);
}

function inMib(bytes: number | undefined): number | undefined {
  return bytes === undefined ? undefined : Math.round(bytes / MIB);
}
