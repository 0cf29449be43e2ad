// Light or dark: the browser's choice until the person chooses.
export type Theme = 'auto' | 'light' | 'dark'

const listeners = new Set<() => void>()
const media = () => window.matchMedia('(prefers-color-scheme: dark)')

export function storedTheme(): Theme {
  const v = read('crane.theme')
  return v === 'light' || v === 'dark' ? v : 'auto'
}

export function applyTheme(t: Theme): void {
  if (t === 'auto') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = t
  write('crane.theme', t === 'auto' ? '' : t)
  for (const l of listeners) l()
}

/** Calls the listener when the colors change. */
export function onTheme(listener: () => void): () => void {
  const m = media()
  listeners.add(listener)
  m.addEventListener('change', listener)
  return () => { listeners.delete(listener); m.removeEventListener('change', listener) }
}

// Storage may be switched off; then choices last as long as the page.
export function read(key: string): string | null {
  try { return window.localStorage.getItem(key) } catch { return null }
}
export function write(key: string, value: string): void {
  try { if (value) window.localStorage.setItem(key, value); else window.localStorage.removeItem(key) } catch { /* not stored */ }
}
