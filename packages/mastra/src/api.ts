/** The server's routes about sandboxes: E2B's, and a few of tupper's own. */

import type { Transport } from './http.js';
import { hasCode } from './errors.js';
import { childOf, fieldsOf, listOf, needText, numberIn, textIn, type Fields } from './json.js';

/** How to reach a sandbox. */
export interface Access {
  sandboxId: string;
  /** For its agent. */
  token: string;
  /** What the server says that ports are reached under. */
  domain: string | undefined;
}

/** What is known about a sandbox. */
export interface Details {
  sandboxId: string;
  state: string;
  startedAt: Date;
  /** Undefined if its life has no limit. */
  endAt: Date | undefined;
  cpus: number | undefined;
  memoryMiB: number | undefined;
  diskMiB: number | undefined;
  template: string | undefined;
  /** Backend, tier of isolation, kernel: what isolates it. */
  isolation: Fields;
}

/** What it uses. */
export interface Usage {
  cpuPercent: number | undefined;
  memoryBytes: number | undefined;
  diskBytes: number | undefined;
}

export class Api {
  readonly #transport: Transport;
  readonly #key: string | undefined;

  constructor(transport: Transport, key: string | undefined) {
    this.#transport = transport;
    this.#key = key;
  }

  async create(body: Fields, signal?: AbortSignal): Promise<Access> {
    return accessOf(await this.#call('POST', '/v2/sandboxes', body, signal));
  }

  /** The running or paused sandbox with this metadata: one that runs, else the newest. */
  async find(key: string, value: string, signal?: AbortSignal): Promise<string | undefined> {
    const pair = `${encodeURIComponent(key)}=${encodeURIComponent(value)}`;
    // The server takes the value of a query for pairs that are encoded once more, as E2B has it.
    const filter = encodeURIComponent(encodeURIComponent(pair));
    const query = `metadata=${filter}&state=running,paused&limit=100`;
    const reply = await this.#call('GET', `/v2/sandboxes?${query}`, undefined, signal);
    const found = listOf(reply, 'the list of sandboxes');
    const best = found.find(one => one['state'] === 'running') ?? found[0];
    return best && needText(best, 'sandboxID', 'a sandbox');
  }

  /** Let it go on if it is paused. Without `timeoutS`, its end stays where it is. */
  async connect(id: string, timeoutS: number | undefined, signal?: AbortSignal): Promise<Access> {
    const body = timeoutS === undefined ? { tupper: {} } : { timeout: timeoutS };
    return accessOf(await this.#call('POST', `/v2${at(id)}/connect`, body, signal));
  }

  async details(id: string): Promise<Details> {
    return detailsOf(fieldsOf(await this.#call('GET', at(id)), 'a sandbox'));
  }

  async usage(id: string): Promise<Usage> {
    const reply = await this.#call('GET', `${at(id)}/metrics`);
    const last = listOf(reply, 'metrics').at(-1) ?? {};
    return {
      cpuPercent: numberIn(last, 'cpuUsedPct'),
      memoryBytes: numberIn(last, 'memUsed'),
      diskBytes: numberIn(last, 'diskUsed'),
    };
  }

  /** Pause it; one that is paused stays so. */
  async pause(id: string): Promise<void> {
    try {
      await this.#call('POST', `${at(id)}/pause`, {});
    } catch (error) {
      if (!hasCode(error, 'CONFLICT')) throw error;
      if ((await this.details(id)).state !== 'paused') throw error;
    }
  }

  async kill(id: string): Promise<void> {
    await this.#call('DELETE', at(id));
  }

  /** An address on this machine that leads to a port inside. Only for its own user. */
  async publish(id: string, port: number): Promise<string> {
    const reply = await this.#call('POST', `/tupper/v1${at(id)}/ports`, { port });
    return needText(fieldsOf(reply, 'an address'), 'address', 'an address');
  }

  /** Keep what a sandbox is now under a name; older snapshots of that name are removed. */
  async snapshot(id: string, name: string): Promise<void> {
    const older = await this.snapshots(name);
    await this.#call('POST', `${at(id)}/snapshots`, { name });
    for (const one of older) await this.#call('DELETE', `/templates/${encodeURIComponent(one)}`);
  }

  /** The ids of the snapshots with a name, the newest first. */
  async snapshots(name: string, signal?: AbortSignal): Promise<string[]> {
    const path = `/snapshots?name=${encodeURIComponent(name)}`;
    const found = listOf(await this.#call('GET', path, undefined, signal), 'the snapshots');
    return found.map(one => needText(one, 'snapshotID', 'a snapshot'));
  }

  async #call(method: string, path: string, body?: Fields, signal?: AbortSignal): Promise<unknown> {
    const headers: Record<string, string> = {};
    if (this.#key !== undefined) headers['X-API-KEY'] = this.#key;
    if (body) headers['Content-Type'] = 'application/json';
    const text = body && JSON.stringify(body);
    const ask = { method, path, headers, signal, ...(text !== undefined && { body: text }) };
    return (await this.#transport.json(ask)).value;
  }
}

function at(id: string): string {
  return `/sandboxes/${encodeURIComponent(id)}`;
}

function accessOf(reply: unknown): Access {
  const fields = fieldsOf(reply, 'a sandbox');
  return {
    sandboxId: needText(fields, 'sandboxID', 'a sandbox'),
    token: needText(fields, 'envdAccessToken', 'a sandbox'),
    domain: textIn(fields, 'domain'),
  };
}

function detailsOf(fields: Fields): Details {
  const ours = childOf(fields, 'tupper');
  return {
    sandboxId: needText(fields, 'sandboxID', 'a sandbox'),
    state: needText(fields, 'state', 'a sandbox'),
    startedAt: new Date(needText(fields, 'startedAt', 'a sandbox')),
    endAt:
      numberIn(ours, 'deadline') === undefined
        ? undefined
        : new Date(needText(fields, 'endAt', 'a sandbox')),
    cpus: numberIn(fields, 'cpuCount'),
    memoryMiB: numberIn(fields, 'memoryMB'),
    diskMiB: numberIn(fields, 'diskSizeMB'),
    template: textIn(fields, 'templateID'),
    isolation: { backend: ours['backend'], isolation: ours['isolation'], kernel: ours['kernel'] },
  };
}
