import type { Origin } from '../api'
import { list } from '../api'
import { t } from '../i18n'
import { duration, time } from '../lib/format'
import { Code } from './parts'

/** The line below a title: time, window and source of the numbers. */
export function From({ of }: { of: Origin | undefined }) {
  if (!of) return null
  return (
    <>
      {of.asOf > 0 && <span>{t('from.asOf', { time: time(of.asOf) })}</span>}
      {!!of.windowSeconds && <span>{t('from.window', { window: duration(of.windowSeconds) })}</span>}
      {of.source && <span>{t('from.source', { source: of.source })}</span>}
    </>
  )
}

/** What limits the numbers: age, completeness. */
export function Notes({ of, partial }: { of: Origin; partial?: boolean | undefined }) {
  const notes = [...(partial ? [t('from.partial')] : []), ...list(of.notes)]
  return (
    <>
      {of.stale && <p class="notice warn" role="status">{t('from.stale', { reason: of.stale })}</p>}
      {notes.length > 0 && <details><summary>{t('from.notes', { n: notes.length })}</summary><ul class="stack">{notes.map(n => <li key={n}>{n}</li>)}</ul></details>}
    </>
  )
}

/** The queries behind the numbers of a page. */
export function Queries({ of }: { of: Origin }) {
  const queries = Object.entries(of.promql ?? {})
  if (queries.length === 0) return null
  return (
    <details>
      <summary>{t('chart.promql')}</summary>
      <div class="stack">{queries.map(([name, q]) => <div key={name}><div class="muted">{name}</div><Code text={q} label={name} /></div>)}</div>
    </details>
  )
}
