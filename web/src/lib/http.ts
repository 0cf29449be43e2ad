// Requests to the server: errors by kind, CSRF token on writes, one place that notices an expired session or a lost connection.
import { CSRFHeader, SessionKeyHeader, type Error as ContractError } from '../contract'
import { sessionKey } from './key'

export type FailureKind = 'expired' | 'forbidden' | 'missing' | 'conflict' | 'invalid' | 'busy' | 'offline' | 'unavailable' | 'failed'

export class Failure extends Error {
  constructor(readonly kind: FailureKind, message: string, readonly right = '', readonly next = '', readonly status = 0) {
    super(message)
  }
}

export function kindOf(status: number): FailureKind {
  switch (status) {
    case 401: return 'expired'
    case 403: return 'forbidden'
    case 404: return 'missing'
    case 409: return 'conflict'
    case 400: case 413: case 422: return 'invalid'
    case 429: return 'busy'
    case 502: case 503: case 504: return 'unavailable'
    default: return 'failed'
  }
}

let csrf = ''
export function setCSRF(token: string): void { csrf = token }

type Event = 'expired' | 'offline' | 'online'
const listeners = new Set<(e: Event) => void>()
export function onConnection(listener: (e: Event) => void): () => void {
  listeners.add(listener)
  return () => { listeners.delete(listener) }
}
function emit(e: Event) { for (const l of listeners) l(e) }

export interface Options { method?: string; body?: unknown; signal?: AbortSignal; quiet?: boolean }

export async function request<T>(path: string, options: Options = {}): Promise<T> {
  const response = await send(path, options)
  const type = response.headers.get('Content-Type') ?? ''
  return (type.includes('json') ? await response.json() : await response.text()) as T
}

export async function send(path: string, { method = 'GET', body, signal, quiet }: Options): Promise<Response> {
  const headers: Record<string, string> = { Accept: 'application/json' }
  if (method !== 'GET') headers[CSRFHeader] = csrf
  const key = sessionKey()
  if (key) headers[SessionKeyHeader] = key
  if (body !== undefined) headers['Content-Type'] = 'application/json'
  let response: Response
  try {
    response = await fetch(path, {
      method, headers, signal: signal ?? null, credentials: 'same-origin', body: body === undefined ? null : JSON.stringify(body),
    })
  } catch (e) {
    if (signal?.aborted) throw e
    emit('offline')
    throw new Failure('offline', e instanceof Error ? e.message : String(e))
  }
  emit('online')
  if (response.ok) return response
  const failure = await responseFailure(response)
  if (failure.kind === 'expired' && !quiet) emit('expired')
  throw failure
}

/** The failure of a part of an answer. */
export function failureOf(e: ContractError): Failure {
  return new Failure(e.reason === 'Forbidden' ? 'forbidden' : e.reason === 'NotFound' || e.reason === 'NotServed' ? 'missing' : 'unavailable', e.message, e.right ?? '', e.next ?? '')
}

async function responseFailure(response: Response): Promise<Failure> {
  const text = await response.text().catch(() => '')
  return parseFailure(response.status, text, response.statusText)
}

/** Reads {"error": {message, right, next}}; other answers, as of a proxy, are shown as they are, shortened. */
export function parseFailure(status: number, text: string, statusText = ''): Failure {
  const kind = kindOf(status)
  try {
    const { error } = JSON.parse(text) as { error?: string | { message?: string; right?: string; next?: string } }
    const known = typeof error === 'string' ? { message: error } : error ?? {}
    return new Failure(kind, known.message || statusText || `HTTP ${status}`, known.right ?? '', known.next ?? '', status)
  } catch {
    return new Failure(kind, text.trim().slice(0, 300) || statusText || `HTTP ${status}`, '', '', status)
  }
}
