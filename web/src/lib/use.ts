// Hooks: data of the server with its last good answer kept, refreshed while the page is visible.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { Failure, request } from './http'

export interface Loaded<T> {
  data: T | undefined
  failure: Failure | undefined
  loading: boolean
  /** When the data arrived, in milliseconds. */
  at: number
  reload: () => void
}

// Answers of this session, so that a page that was open before is drawn at once; bounded.
const cache = new Map<string, { data: unknown; at: number }>()
const cacheSize = 40

export function remember(path: string, data: unknown): void {
  cache.delete(path)
  cache.set(path, { data, at: Date.now() })
  if (cache.size > cacheSize) cache.delete(cache.keys().next().value!)
}

export function forget(): void { cache.clear() }

/** retryAfter is the time after which a request that failed for now is repeated, in milliseconds. */
const retryAfter = 3000

/** Reads a path, null for nothing. With every, in milliseconds, it is read again while the page is visible. */
export function useData<T>(path: string | null, every = 0): Loaded<T> {
  const known = path ? cache.get(path) : undefined
  const [state, set] = useState<{ path: string | null; data: T | undefined; failure: Failure | undefined; loading: boolean; at: number }>(
    { path, data: known?.data as T | undefined, failure: undefined, loading: path !== null, at: known?.at ?? 0 })
  const [round, setRound] = useState(0)
  useEffect(() => {
    if (!path) return
    const control = new AbortController()
    const stored = cache.get(path)
    set(s => ({ path, data: s.path === path ? s.data : stored?.data as T | undefined, failure: s.path === path ? s.failure : undefined, loading: true, at: stored?.at ?? 0 }))
    let retry = 0
    const load = (): Promise<void> => request<T>(path, { signal: control.signal }).then(
      data => { remember(path, data); set({ path, data, failure: undefined, loading: false, at: Date.now() }) },
      (e: unknown) => {
        if (control.signal.aborted) return
        const failure = e instanceof Failure ? e : new Failure('failed', String(e))
        set(s => ({ ...s, failure, loading: false }))
        // The server is still reading the data, or cannot reach its source: the timer of the page would show that for minutes.
        window.clearTimeout(retry) // One at a time: the timer of the page starts requests as well.
        if (failure.kind === 'unavailable') retry = window.setTimeout(() => { void load() }, retryAfter)
      })
    void load()
    const timer = every > 0 ? window.setInterval(() => { if (!document.hidden) void load() }, every) : 0
    return () => { control.abort(); window.clearInterval(timer); window.clearTimeout(retry) }
  }, [path, round, every])
  const reload = useCallback(() => setRound(r => r + 1), [])
  const fresh = state.path === path
  return {
    data: fresh ? state.data : known?.data as T | undefined, failure: fresh ? state.failure : undefined,
    loading: fresh ? state.loading : path !== null, at: state.at, reload,
  }
}

/** Returns the value after it has not changed for some milliseconds. */
export function useSettled<T>(value: T, ms: number): T {
  const [settled, set] = useState(value)
  useEffect(() => {
    const timer = window.setTimeout(() => set(() => value), ms)
    return () => window.clearTimeout(timer)
  }, [value, ms])
  return settled
}

export function useSize(): [(e: Element | null) => void, { width: number; height: number }] {
  const [size, set] = useState({ width: 0, height: 0 })
  const observer = useRef<ResizeObserver | null>(null)
  const ref = useCallback((e: Element | null) => {
    observer.current?.disconnect()
    if (!e) return
    observer.current = new ResizeObserver(entries => {
      const box = entries[0]!.contentRect
      set({ width: box.width, height: box.height })
    })
    observer.current.observe(e)
  }, [])
  return [ref, size]
}
