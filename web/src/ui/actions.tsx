// Export, dry run and adoption of recommendations. Nothing is written before a dry run has been shown.
import { useEffect, useState } from 'preact/hooks'
import { list, paths, type ActionResult, type Item, type ItemResult } from '../api'
import { t, type Key } from '../i18n'
import { count } from '../lib/format'
import { saveFile } from '../lib/file'
import { Failure, request, send } from '../lib/http'
import { Code, Copy, Modal, Segments, Tag } from './parts'
import { Failed, Loading } from './states'
import { toast } from './toast'

export type Action = 'adopt' | 'pause' | 'resume' | 'rollback'

const batch = 200

async function act(action: Action, items: Item[], dryRun: boolean): Promise<ItemResult[]> {
  const results: ItemResult[] = []
  for (let i = 0; i < items.length; i += batch) {
    const answer = await request<ActionResult>(paths.action, { method: 'POST', body: { action, dryRun, items: items.slice(i, i + batch) } })
    results.push(...list(answer.results))
  }
  return results
}

const label = (a: Action) => t(('action.' + a) as Key)

/** Shows what an action would do, and does it after a confirmation. With onlyDryRun there is no confirmation. */
export function ActionDialog({ action, items, onlyDryRun, onClose, onDone }: {
  action: Action; items: Item[]; onlyDryRun?: boolean; onClose: () => void; onDone: () => void
}) {
  const [results, setResults] = useState<ItemResult[]>()
  const [failure, setFailure] = useState<Failure>()
  const [busy, setBusy] = useState(false)
  const failed = (e: unknown) => { setFailure(e instanceof Failure ? e : new Failure('failed', String(e))); setBusy(false) }
  useEffect(() => { act(action, items, true).then(setResults, failed) }, [])
  const accepted = results?.filter(r => r.ok) ?? []
  const run = () => {
    setBusy(true)
    act(action, accepted.map(r => r.item), false).then(done => {
      const bad = done.filter(r => !r.ok)
      toast(t('act.done', { action: label(action), n: done.length - bad.length, total: done.length }) + (bad[0]?.error ? ' ' + bad[0].error.message : ''), bad.length ? 'bad' : 'good')
      onDone()
      onClose()
    }, failed)
  }
  const foot = results && !failure && (
    <>
      <button type="button" class="button" onClick={onClose}>{t('action.cancel')}</button>
      {!onlyDryRun && <button type="button" class={action === 'rollback' ? 'button danger' : 'button primary'} disabled={busy || accepted.length === 0} onClick={run}>{t('act.confirm', { action: label(action), n: accepted.length })}</button>}
    </>
  )
  return (
    <Modal title={t('act.title', { action: label(action), n: count(items.length) })} onClose={onClose} foot={foot}>
      <p class="muted">{t(('act.about.' + action) as Key)}</p>
      {failure ? <Failed failure={failure} /> : results ? <Results results={results} /> : <Loading label={t('act.dryRunning')} />}
    </Modal>
  )
}

const shownResults = 100

function Results({ results }: { results: ItemResult[] }) {
  const bad = results.filter(r => !r.ok).length
  return (
    <>
      <p role="status"><strong>{t('act.accepted', { n: results.length - bad, total: results.length })}</strong> {t('act.nothingWritten')}</p>
      <ul class="attention">
        {results.slice(0, shownResults).map(r => {
          const requests = list(r.requests)
          return (
            <li key={JSON.stringify(r.item)}>
              <Tag tone={r.ok ? 'good' : 'bad'}>{r.ok ? t('act.ok') : t('act.refused')}</Tag>
              <div class="stack">
                <div><strong>{[r.item.cluster, r.item.namespace, r.item.name ?? `${r.item.kind}/${r.item.workload}`].filter(Boolean).join(' / ')}</strong></div>
                {(r.error || r.message) && <div class="muted">{r.error ? [r.error.message, r.error.right, r.error.next].filter(Boolean).join(' · ') : r.message}</div>}
                {list(r.remarks).map(m => <div class="muted" key={m}>{m}</div>)}
                {requests.length > 0 && (
                  <details><summary>{t('act.requests', { n: requests.length })}</summary>
                    <div class="stack">{requests.map(q => <div key={q.object}><code>{q.object}</code><Code text={q.patch} label={q.object} /></div>)}</div>
                  </details>
                )}
              </div>
            </li>
          )
        })}
      </ul>
      {results.length > shownResults && <p class="muted">{t('act.more', { n: count(results.length - shownResults) })}</p>}
    </>
  )
}

const formats = ['kustomize', 'patch', 'helm', 'csv'] as const
type Format = (typeof formats)[number]

/** Shows the export of the selected rows, to copy or to save. */
export function ExportDialog({ items, onClose }: { items: Item[]; onClose: () => void }) {
  const [format, setFormat] = useState<Format>('kustomize')
  const [text, setText] = useState<string>()
  const [failure, setFailure] = useState<Failure>()
  useEffect(() => {
    const control = new AbortController()
    setText(undefined)
    setFailure(undefined)
    send(paths.export, { method: 'POST', body: { format, items }, signal: control.signal }).then(r => r.text()).then(setText, (e: unknown) => {
      if (!control.signal.aborted) setFailure(e instanceof Failure ? e : new Failure('failed', String(e)))
    })
    return () => control.abort()
  }, [format])
  const save = () => saveFile('crane-recommendations.' + (format === 'csv' ? 'csv' : 'yaml'), text ?? '')
  return (
    <Modal title={t('export.title', { n: count(items.length) })} onClose={onClose}
      foot={text !== undefined && <><Copy text={text} /><button type="button" class="button primary" onClick={save}>{t('export.save')}</button></>}>
      <Segments label={t('export.format')} value={format} onChange={setFormat} options={formats.map(f => ({ value: f, label: t(('export.' + f) as Key) }))} />
      <p class="muted">{t(('export.about.' + format) as Key)}</p>
      {failure ? <Failed failure={failure} /> : text === undefined ? <Loading /> : <pre tabIndex={0} aria-label={t('export.preview')}>{text.length > 200_000 ? text.slice(0, 200_000) + '\n…' : text}</pre>}
    </Modal>
  )
}
