/** JSON from outside: `unknown` until looked at. */

import { TupperError } from './errors.js';

export type Fields = Record<string, unknown>;

/** An object of a reply. Throws BAD_REPLY for anything else. */
export function fieldsOf(value: unknown, what: string): Fields {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Fields;
  throw new TupperError(`${what} is not an object`, 'BAD_REPLY');
}

/** A list of objects of a reply. */
export function listOf(value: unknown, what: string): Fields[] {
  if (!Array.isArray(value)) throw new TupperError(`${what} is not a list`, 'BAD_REPLY');
  return value.map(item => fieldsOf(item, `an item of ${what}`));
}

/** Text, or undefined if it is absent, null or something else. */
export function textIn(fields: Fields, key: string): string | undefined {
  const value = fields[key];
  return typeof value === 'string' ? value : undefined;
}

/** Text that must be there. */
export function needText(fields: Fields, key: string, what: string): string {
  const value = textIn(fields, key);
  if (value === undefined) throw new TupperError(`${what} has no ${key}`, 'BAD_REPLY');
  return value;
}

/** A number, or undefined; 64-bit numbers come as text. */
export function numberIn(fields: Fields, key: string): number | undefined {
  const value = fields[key];
  if (typeof value === 'number') return value;
  return typeof value === 'string' && value !== '' && Number.isFinite(Number(value))
    ? Number(value)
    : undefined;
}

/** An object inside, or an empty one. */
export function childOf(fields: Fields, key: string): Fields {
  const value = fields[key];
  return value === undefined || value === null ? {} : fieldsOf(value, key);
}
