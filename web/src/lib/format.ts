// Numbers and times as text, with the unit always beside the number. A number that is missing, NaN or infinite is a dash, never a zero.
import { locale } from '../i18n'

export const missing = '–'

export function known(v: number | null | undefined): v is number {
  return typeof v === 'number' && Number.isFinite(v)
}

function decimal(v: number, digits: number): string {
  return new Intl.NumberFormat(locale(), { maximumFractionDigits: digits, minimumFractionDigits: 0 }).format(v)
}

/** CPU in cores: 0.25 is "250m", as Kubernetes writes it. */
export function cpu(cores: number | null | undefined): string {
  if (!known(cores)) return missing
  const abs = Math.abs(cores)
  if (abs === 0) return '0'
  if (abs < 0.001) return decimal(cores * 1000, 2) + 'm'
  if (abs < 1) return Math.round(cores * 1000) + 'm'
  return decimal(cores, abs < 10 ? 2 : abs < 100 ? 1 : 0)
}

const binary = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']

export function bytes(v: number | null | undefined): string {
  if (!known(v)) return missing
  let n = v
  let unit = 0
  while (Math.abs(n) >= 1024 && unit < binary.length - 1) {
    n /= 1024
    unit++
  }
  return decimal(n, Math.abs(n) < 10 ? 2 : Math.abs(n) < 100 ? 1 : 0) + ' ' + binary[unit]
}

/** A quantity of a resource in its own unit. */
export function quantity(resource: string, v: number | null | undefined): string {
  if (resource === 'cpu') return cpu(v)
  if (resource === 'memory') return bytes(v)
  return count(v)
}

/** The unit that quantity leaves out, for headers and charts. */
export function unitOf(resource: string): string {
  return resource === 'cpu' ? 'cores' : resource === 'memory' ? 'bytes' : ''
}

export function count(v: number | null | undefined): string {
  return known(v) ? decimal(v, Math.abs(v) < 10 ? 2 : 0) : missing
}

export function percent(ratio: number | null | undefined, digits = 0): string {
  return known(ratio) ? decimal(ratio * 100, digits) + ' %' : missing
}

/** The relative change from one value to another, with its sign. */
export function change(from: number | null | undefined, to: number | null | undefined): string {
  if (!known(from) || !known(to) || from === 0) return missing
  return signedPercent(to / from - 1)
}

export function signedPercent(ratio: number | null | undefined): string {
  if (!known(ratio)) return missing
  const text = percent(Math.abs(ratio))
  return ratio > 0.005 ? '+' + text : ratio < -0.005 ? '−' + text : text
}

/** Money, with the currency's code where it is one; prices may have units of their own. */
export function money(v: number | null | undefined, currency: string): string {
  if (!known(v)) return missing
  const digits = v !== 0 && Math.abs(v) < 100 ? 2 : 0
  const unit = currency || 'USD'
  if (/^[A-Z]{3}$/.test(unit)) {
    return new Intl.NumberFormat(locale(), {
      style: 'currency', currency: unit, currencyDisplay: 'narrowSymbol', maximumFractionDigits: digits, minimumFractionDigits: digits,
    }).format(v)
  }
  return decimal(v, digits) + ' ' + unit
}

/** A duration in seconds as its two largest units: "2d 3h". */
export function duration(seconds: number | null | undefined): string {
  if (!known(seconds)) return missing
  const s = Math.round(Math.abs(seconds))
  const sign = seconds < 0 && s > 0 ? '−' : ''
  const units: [number, string][] = [[86400, 'd'], [3600, 'h'], [60, 'm'], [1, 's']]
  const first = units.findIndex(([size]) => s >= size)
  if (first < 0) return '0s'
  const parts: string[] = []
  let rest = s
  for (const [size, name] of units.slice(first, first + 2)) {
    const n = Math.floor(rest / size)
    rest -= n * size
    if (n > 0) parts.push(n + name)
  }
  return sign + parts.join(' ')
}

/** Seconds since 1970 or an RFC 3339 text; NaN where it is neither. */
export function toSeconds(t: number | string | null | undefined): number {
  if (typeof t === 'number') return t
  if (!t) return NaN
  const ms = Date.parse(t)
  // Go writes its zero time as year 1, which stands for "never".
  return ms > 0 ? ms / 1000 : NaN
}

export function age(t: number | string | null | undefined, now: number = Date.now() / 1000): string {
  const at = toSeconds(t)
  if (!known(at)) return missing
  const s = now - at
  return s < 0 ? '0s' : s < 120 ? Math.round(s) + 's' : duration(s).split(' ')[0]!
}

export function time(t: number | string | null | undefined): string {
  const at = toSeconds(t)
  if (!known(at)) return missing
  return new Intl.DateTimeFormat(locale(), {
    year: 'numeric', month: 'short', day: '2-digit', hour: '2-digit', minute: '2-digit', hour12: false,
  }).format(new Date(at * 1000))
}

/** The ISO form of a time, for the attribute of <time> and for files. */
export function iso(t: number | string | null | undefined): string {
  const at = toSeconds(t)
  return known(at) ? new Date(at * 1000).toISOString() : ''
}

/** CPU in thousandths of a core. */
export function milli(v: number | null | undefined): string {
  return known(v) ? cpu(v / 1000) : missing
}
