// The key of a session on loopback. Cookies reach all ports of a host; storage belongs to one.
const name = 'crane-session-key'

/** Moves the key from the address that opened the session to the storage of the page. */
export function takeKey(): void {
  const key = /^#key=([\w-]+)$/.exec(location.hash)?.[1]
  if (!key) return
  localStorage.setItem(name, key)
  history.replaceState(null, '', location.pathname + location.search)
}

export function sessionKey(): string {
  return typeof localStorage === 'undefined' ? '' : localStorage.getItem(name) ?? ''
}
