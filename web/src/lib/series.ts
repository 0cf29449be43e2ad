// Series of the server on one time axis, as the chart draws them.
import type { Mark, Series } from '../api'
import { t, tOr } from '../i18n'
import { known } from './format'
import type { Line, Mark as ChartMark, Tone } from '../ui/chart'

interface Style { tone: Tone; dashed?: boolean; stepped?: boolean; hidden?: boolean; thin?: boolean; bandTo?: string; follows?: string }

// Lines in the order in which they are drawn; a request holds until it is changed.
const styles: Record<string, Style> = {
  usage: { tone: 'use' },
  usageMean: { tone: 'muted', hidden: true },
  recommended: { tone: 'recommended', stepped: true },
  request: { tone: 'request', stepped: true },
  limit: { tone: 'limit', dashed: true, stepped: true },
  forecast: { tone: 'forecast', dashed: true },
  forecastHigh: { tone: 'forecast', thin: true, bandTo: 'forecastLow' },
  forecastLow: { tone: 'forecast', thin: true, follows: 'forecastHigh' },
  throttled: { tone: 'warn', hidden: true },
  replicas: { tone: 'accent', stepped: true },
  replicasAlone: { tone: 'request', dashed: true },
  replicasForecast: { tone: 'forecast', dashed: true },
}

/** Puts series with times of their own on the union of the times. Null is a gap; undefined is a time that a series does not have. */
export function align(series: readonly Series[]): { times: number[]; values: (number | null | undefined)[][] } {
  const all = new Set<number>()
  for (const s of series) for (const at of s.t ?? []) all.add(at)
  const times = [...all].sort((a, b) => a - b)
  const position = new Map(times.map((at, i) => [at, i]))
  const values = series.map(s => {
    const v = new Array<number | null | undefined>(times.length).fill(undefined)
    const at = s.t ?? []
    at.forEach((x, i) => { v[position.get(x)!] = s.v?.[i] ?? null })
    return v
  })
  return { times, values }
}

/** The last value before each time: a request holds from one point to the next, and after the last one. */
export function held(values: (number | null | undefined)[]): (number | null)[] {
  let last: number | null = null
  return values.map(v => { if (v !== undefined) last = v; return last })
}

export function linesOf(series: readonly Series[]): { times: number[]; lines: Line[] } {
  const drawn = series.filter(s => styles[s.kind] && (s.t?.length ?? 0) > 0)
    .sort((a, b) => Object.keys(styles).indexOf(a.kind) - Object.keys(styles).indexOf(b.kind))
  const { times, values } = align(drawn)
  // The values of held lines end where the data end, not where a forecast does.
  const lines = drawn.map((s, i): Line => {
    const { bandTo, ...style } = styles[s.kind]!
    const band = bandTo !== undefined && drawn.some(o => o.kind === bandTo)
    return {
      id: s.kind, label: tOr('series.' + s.kind, s.kind), ...style, ...(band ? { bandTo: bandTo! } : {}),
      values: (style.stepped ? held(values[i]!) : values[i]!) as (number | null)[], ...(s.promql ? { promql: s.promql } : {}),
    }
  })
  hideFarLimit(lines)
  return { times, lines }
}

/** A limit far above everything else would flatten the lines that matter; the legend shows it again. */
function hideFarLimit(lines: Line[]): void {
  const top = (l: Line) => l.values.reduce<number>((m, v) => Math.max(m, v ?? 0), 0)
  const limit = lines.find(l => l.id === 'limit')
  const others = Math.max(0, ...lines.filter(l => l !== limit).map(top))
  if (limit && others > 0 && top(limit) > 1.5 * others) limit.hidden = true
}

/** Adds the present recommendation as a level line where the server has no history of it. */
export function withRecommended(series: readonly Series[], resource: string, value: number | null | undefined): readonly Series[] {
  const t = series.find(s => s.kind === 'usage')?.t ?? []
  if (!known(value) || t.length === 0 || series.some(s => s.kind === 'recommended')) return series
  return [...series, { kind: 'recommended', resource, unit: '', t: [t[0]!, t.at(-1)!], v: [value, value] }]
}

const markTones: Record<string, Tone> = { rollout: 'accent', resize: 'recommended', adoption: 'forecast', rollback: 'warn', oom: 'limit', cron: 'accent' }

export function marksOf(marks: readonly Mark[]): ChartMark[] {
  return marks.map(m => ({ t: m.at, label: m.text, tone: markTones[m.kind] ?? 'muted', kind: tOr('mark.' + m.kind, m.kind) }))
}

export interface Range { from: number; to: number }

const spans: Record<string, number> = { '6h': 6 * 3600, '1d': 86400, '3d': 3 * 86400, '7d': 7 * 86400, '14d': 14 * 86400 }
export const spanNames = Object.keys(spans)

/** The range of an address: from and to, or a span before now, rounded to a minute so that equal requests are cached. */
export function rangeOf(query: URLSearchParams, now: number, fallback = '14d'): Range & { span: string } {
  const from = Number(query.get('from'))
  const to = Number(query.get('to'))
  if (from > 0 && to > from) return { from, to, span: '' }
  const span = spans[query.get('range') ?? ''] ? query.get('range')! : fallback
  const end = Math.floor(now / 60) * 60
  return { from: end - spans[span]!, to: end, span }
}

export function rangeLabel(span: string): string {
  return span.endsWith('h') ? t('range.hours', { n: span.slice(0, -1) }) : t('range.days', { n: span.slice(0, -1) })
}
