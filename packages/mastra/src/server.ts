/** The server of a sandbox, from the options and the environment. */

import { atUrl, background, type Locator } from './address.js';
import { Api } from './api.js';
import { TupperError } from './errors.js';
import { Transport } from './http.js';
import type { ServerOptions } from './options.js';

export interface Server {
  transport: Transport;
  api: Api;
  /** The URL of a port inside, by its host name. */
  hostUrl(port: number, sandboxId: string, domain: string | undefined): string;
}

/** Sandboxes of one process share the background process, and the search for it. */
const backgrounds = new Map<string, Locator>();

/** Does no I/O. */
export function serverFrom(options: ServerOptions): Server {
  const url = options.url ?? process.env['TUPPER_URL'];
  if (!url) {
    const transport = new Transport(shared(options.program ?? 'tupper'));
    return { transport, api: new Api(transport, undefined), hostUrl: noHost };
  }
  const transport = new Transport(atUrl(url));
  const key = options.apiKey ?? process.env['TUPPER_API_KEY'];
  if (!key) {
    throw new TupperError(`no key for ${url}`, 'UNAUTHENTICATED', {
      hint: 'give `apiKey` or set TUPPER_API_KEY; `tupper key create` makes one',
    });
  }
  const origin = new URL(url);
  return {
    transport,
    api: new Api(transport, key),
    hostUrl: (port, id, domain) => hostUrl(origin, port, id, options.domain ?? domain),
  };
}

function shared(program: string): Locator {
  const known = backgrounds.get(program);
  if (known) return known;
  const made = background(program);
  backgrounds.set(program, made);
  return made;
}

/**
 * A server names its domain if it was given one. A server on this machine is under `localhost`, which
 * every resolver takes for this machine, whatever stands before it.
 */
function hostUrl(origin: URL, port: number, id: string, domain: string | undefined): string {
  const isHere = /^(localhost|127\.[\d.]+|\[::1\])$/.test(origin.hostname);
  const under = domain ?? (isHere ? `localhost:${origin.port}` : origin.host);
  return `${origin.protocol}//${port}-${id}.${under}`;
}

function noHost(): never {
  throw new TupperError('ports of this machine have addresses, not names', 'INTERNAL');
}
