// The worklist in memory: filters, order and sums over all rows, without the DOM.
import { idOf, type Row } from '../api'
import { known } from './format'

export interface Filter { text: string; cluster: string; namespace: string; label: string; kind: string; type: string; state: string }

export const noFilter: Filter = { text: '', cluster: '', namespace: '', label: '', kind: '', type: '', state: '' }

/** A row with its key and the texts that filters compare, built once. */
export interface Indexed { id: string; row: Row; text: string; labels: string[] }

export function index(rows: readonly Row[]): Indexed[] {
  return rows.map(row => {
    const labels = Object.entries(row.labels ?? {}).map(([k, v]) => k + '=' + v)
    const text = [row.cluster, row.namespace, row.kind, row.workload, row.type, row.change, row.rule, row.reason, ...labels].join(' ').toLowerCase()
    return { id: idOf(row), row, text, labels }
  })
}

export function filterRows(rows: Indexed[], f: Filter): Indexed[] {
  const words = f.text.toLowerCase().split(/\s+/).filter(Boolean)
  return rows.filter(({ row, text, labels }) =>
    (!f.cluster || row.cluster === f.cluster) && (!f.namespace || row.namespace === f.namespace) && (!f.kind || row.kind === f.kind) &&
    (!f.type || row.type === f.type) && (!f.state || row.state === f.state) && (!f.label || labels.includes(f.label)) &&
    words.every(w => text.includes(w)))
}

const numberOf = (v: number | null | undefined): number => (known(v) ? v : NaN)

const keys: Record<string, (r: Row) => number | string> = {
  workload: r => (r.namespace ?? '') + '/' + r.workload,
  type: r => r.type,
  state: r => r.state,
  saving: r => numberOf(r.savingPerMonth),
  risk: r => r.risk,
  cpu: r => numberOf(r.savedCPUMilli),
  memory: r => numberOf(r.savedMemoryBytes),
  age: r => -(r.updated || NaN),
}

/** Orders rows; unknown numbers are last in either direction, and equal rows are in the order of their keys. */
export function sortRows(rows: Indexed[], by: string, down: boolean): Indexed[] {
  const key = keys[by] ?? keys.saving!
  const sign = down ? -1 : 1
  const decorated = rows.map(r => ({ r, k: key(r.row) }))
  decorated.sort((a, b) => {
    if (typeof a.k === 'number' && typeof b.k === 'number') {
      const aKnown = a.k === a.k
      const bKnown = b.k === b.k
      if (aKnown !== bKnown) return aKnown ? -1 : 1
      if (aKnown && a.k !== b.k) return sign * (a.k - b.k)
    } else if (a.k !== b.k) {
      return sign * (a.k < b.k ? -1 : 1)
    }
    return a.r.id < b.r.id ? -1 : 1
  })
  return decorated.map(d => d.r)
}

export interface Count { value: string; n: number }

/** The values of a field with their numbers of rows, by name. */
export function facet(rows: Indexed[], of: (r: Row) => string | undefined): Count[] {
  const counts = new Map<string, number>()
  for (const { row } of rows) {
    const v = of(row)
    if (v) counts.set(v, (counts.get(v) ?? 0) + 1)
  }
  return byName(counts)
}

const maxLabels = 300

/** The most frequent labels, by name. */
export function labelFacet(rows: Indexed[]): Count[] {
  const counts = new Map<string, number>()
  for (const { labels } of rows) for (const l of labels) counts.set(l, (counts.get(l) ?? 0) + 1)
  return byName(new Map([...counts].sort((a, b) => b[1] - a[1]).slice(0, maxLabels)))
}

function byName(counts: Map<string, number>): Count[] {
  return [...counts].map(([value, n]) => ({ value, n })).sort((a, b) => (a.value < b.value ? -1 : 1))
}

/** The sums of positive and negative savings. Unknown ones are counted and not added. */
export function sumSavings(rows: Indexed[]): { saving: number; cost: number; unknown: number } {
  let saving = 0
  let cost = 0
  let unknown = 0
  for (const { row } of rows) {
    const v = row.savingPerMonth
    if (!known(v)) unknown++
    else if (v > 0) saving += v
    else cost -= v
  }
  return { saving, cost, unknown }
}
