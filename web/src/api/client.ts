/** Requests to the server's own API. Paths, parameters and answers have the types of docs/openapi.json. */
import { signal } from '@preact/signals';
import type { components, paths } from './schema';

export type Schemas = components['schemas'];

/** The person whom an operator's console acts for; null if the credential is a person's own. */
export const actingFor = signal<string | null>(null);

/** Set when the server says that the session has ended. */
export const signedOut = signal(false);

/** A refusal of the server, or a failed connection (`status` 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: unknown = undefined,
  ) {
    super(message);
  }
}

type Method = 'get' | 'post' | 'put' | 'patch' | 'delete';
type PathsOf<M extends Method> = { [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never }[keyof paths];
type JsonOf<T> = T extends { content: { 'application/json': infer B } } ? B : undefined;
type Operation<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never;
type AnswerOf<O> = O extends { responses: infer R } ? JsonOf<R[Extract<keyof R, 200 | 201 | 202 | 204>]> : never;
type QueryOf<O> = O extends { parameters: { query?: infer Q } } ? Q : never;
type PathOf<O> = O extends { parameters: { path: infer P } } ? P : never;

/** What a request may carry beside its path. */
export interface Options {
  path?: object;
  query?: object;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

type TypedOptions<O> = Omit<Options, 'path' | 'query'> & { query?: QueryOf<O> } & ([PathOf<O>] extends [never] ? object : { path: PathOf<O> });

/** The headers that every request carries. */
export function identityHeaders(): Record<string, string> {
  return actingFor.value ? { 'x-user-id': actingFor.value } : {};
}

/** Puts values into the `{name}` places of a path, and adds the query. */
export function address(path: string, options: Options = {}): string {
  const values = (options.path ?? {}) as Record<string, unknown>;
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(values[name])));
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options.query ?? {})) {
    if (value !== undefined && value !== null && value !== '') query.set(name, String(value));
  }
  const text = query.toString();
  return text ? `${filled}?${text}` : filled;
}

/** Reads the refusal of an answer. */
export async function refusal(response: Response): Promise<ApiError> {
  const body = (await response.json().catch(() => null)) as { error?: { code?: string; message?: string; details?: unknown } } | null;
  if (response.status === 401) signedOut.value = true;
  return new ApiError(response.status, body?.error?.code ?? `http_${response.status}`, body?.error?.message ?? response.statusText, body?.error?.details);
}

/** Sends a request and returns the answer, which is not read yet. */
export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { accept: 'application/json', ...identityHeaders(), ...options.headers };
  const body = options.body === undefined ? undefined : JSON.stringify(options.body);
  if (body !== undefined) headers['content-type'] = 'application/json';
  let response: Response;
  try {
    response = await fetch(address(path, options), { method: method.toUpperCase(), headers, body, signal: options.signal, credentials: 'same-origin' });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, 'server_unreachable', error instanceof Error ? error.message : String(error));
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

/** Sends a request and reads its JSON answer. */
export async function json<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const response = await send(method, path, options);
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

function typed<M extends Method>(method: M) {
  return <P extends PathsOf<M>>(path: P, ...[options]: [PathOf<Operation<P, M>>] extends [never] ? [TypedOptions<Operation<P, M>>?] : [TypedOptions<Operation<P, M>>]) =>
    json<AnswerOf<Operation<P, M>>>(method, path, options as Options | undefined);
}

export const api = { get: typed('get'), post: typed('post'), put: typed('put'), patch: typed('patch'), delete: typed('delete') };
