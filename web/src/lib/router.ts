// URL state: the path selects the page, the query holds filters, order and selections of the page.
import { useEffect, useState } from 'preact/hooks'

export interface Location {
  path: string[]
  query: URLSearchParams
}

export function parseLocation(href: string): Location {
  const url = new URL(href, 'http://localhost')
  const path = url.pathname.split('/').filter(Boolean).map(safeDecode)
  return { path, query: url.searchParams }
}

function safeDecode(s: string): string {
  try {
    return decodeURIComponent(s)
  } catch {
    return s
  }
}

const listeners = new Set<() => void>()

function current(): Location {
  return parseLocation(window.location.href)
}

/** Opens a path of the dashboard. With replace the entry of the history is replaced, as for filters while typing. */
export function navigate(to: string, replace = false): void {
  if (to === window.location.pathname + window.location.search) return
  if (replace) window.history.replaceState(null, '', to)
  else window.history.pushState(null, '', to)
  for (const l of listeners) l()
  if (!replace) window.scrollTo(0, 0)
}

export function useLocation(): Location {
  const [location, set] = useState(current)
  useEffect(() => {
    const update = () => set(current())
    listeners.add(update)
    window.addEventListener('popstate', update)
    return () => {
      listeners.delete(update)
      window.removeEventListener('popstate', update)
    }
  }, [])
  return location
}

/** Returns the address of the present page with some parameters changed; an empty value removes its parameter. */
export function withQuery(changes: Record<string, string>): string {
  const { pathname, search } = window.location
  return pathname + changedQuery(search, changes)
}

export function changedQuery(search: string, changes: Record<string, string>): string {
  const query = new URLSearchParams(search)
  for (const [key, value] of Object.entries(changes)) {
    if (value === '') query.delete(key)
    else query.set(key, value)
  }
  const text = query.toString()
  return text ? '?' + text : ''
}

export function setQuery(changes: Record<string, string>, replace = true): void {
  navigate(withQuery(changes), replace)
}

export function path(...parts: string[]): string {
  return '/' + parts.map(encodeURIComponent).join('/')
}
