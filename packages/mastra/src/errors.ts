/**
 * What can go wrong, as errors of Mastra: chosen by `code`, never by the message.
 *
 *     SandboxError
 *     ├─ TupperError                     code: what the server calls it, in capitals
 *     ├─ SandboxUnsupportedFeatureError  this tupper, or this backend, cannot do that
 *     └─ SandboxAbortError               the caller's signal
 */

import {
  SandboxAbortError,
  SandboxError,
  SandboxUnsupportedFeatureError,
} from '@mastra/core/workspace';

/** The sandbox does not exist any more. */
export const GONE = 'SANDBOX_NOT_FOUND';
/** Nobody answers at the address. */
export const UNREACHABLE = 'SERVER_UNREACHABLE';
/** The connection broke in the middle of an answer. */
export const LOST = 'CONNECTION_LOST';

/** An error of tupper. `hint`, if it is there, says what to do. */
export class TupperError extends SandboxError {
  readonly hint: string | undefined;

  constructor(message: string, code: string, options: { hint?: string; cause?: unknown } = {}) {
    super(options.hint ? `${message} (${options.hint})` : message, code);
    this.name = 'TupperError';
    this.hint = options.hint;
    if (options.cause !== undefined) this.cause = options.cause;
  }
}

/** Whether an error says that the sandbox does not exist any more. */
export function isGone(error: unknown): boolean {
  return error instanceof SandboxError && error.code === GONE;
}

/** Whether an error has this code. */
export function hasCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof SandboxError && codes.includes(error.code);
}

/** The error of an answer with a status of 400 or more. */
export function errorFrom(status: number, body: unknown): SandboxError {
  const said: Record<string, unknown> =
    typeof body === 'object' && body !== null ? { ...body } : {};
  const message = typeof said['message'] === 'string' ? said['message'] : `status ${status}`;
  const hint = typeof said['hint'] === 'string' ? said['hint'] : undefined;
  if (status === 501) return new SandboxUnsupportedFeatureError(message, { hint });
  // The proxy has no code of its own for a sandbox that is gone; E2B's clients know it by this text.
  if (status === 502 && message.includes('was not found')) return new TupperError(message, GONE);
  return new TupperError(message, codeOf(status, said), hint === undefined ? {} : { hint });
}

function codeOf(status: number, said: Record<string, unknown>): string {
  // Our routes say error_code; the agent's streams have Connect's code, which is text, too.
  const given = said['error_code'] ?? said['code'];
  return typeof given === 'string' ? given.toUpperCase() : `HTTP_${status}`;
}

/** Throw what a signal stands for, if it has been given. */
export function throwIfAborted(signal: AbortSignal | undefined, operation: string): void {
  if (signal?.aborted) throw new SandboxAbortError(operation, signal.reason);
}
