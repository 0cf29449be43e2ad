import { useMemo, useState } from 'preact/hooks'
import { itemOf, list, paths, type ContainerDetail, type Place, type ResourceDetail, type Row, type WorkloadDetail, type WorkloadSeries } from '../api'
import { t } from '../i18n'
import { bytes, count, known, milli, money } from '../lib/format'
import { setQuery, withQuery, navigate } from '../lib/router'
import { linesOf, marksOf, rangeLabel, rangeOf, spanNames, withRecommended } from '../lib/series'
import { useData } from '../lib/use'
import { useCluster } from '../session'
import { ActionDialog, ExportDialog, type Action } from '../ui/actions'
import { Chart } from '../ui/chart'
import { From, Notes, Queries } from '../ui/origin'
import { Card, Code, Figure, Figures, Head, Segments, Tag } from '../ui/parts'
import { Data, Empty, Failed, Learning } from '../ui/states'
import { failureOf } from '../lib/http'
import { Derivation, ReplayTable } from './derivation'
import { WhatIfCard } from './whatif'
import { Amounts, Risk, StateTag } from './worklist'
import type { PageProps } from '.'
import { Scroll } from '../ui/scroll'

type Resource = 'cpu' | 'memory'

export function Workload({ path, query }: PageProps) {
  const part = (i: number) => (path[i] === '-' ? '' : path[i] ?? '')
  const place = { cluster: part(0), namespace: part(1), kind: part(2), name: part(3) }
  const cluster = useCluster(place.cluster)
  const loaded = useData<WorkloadDetail>(place.name ? cluster.address(paths.workload, { namespace: place.namespace, kind: place.kind, name: place.name }) : null, 30_000)
  const about = (
    <>
      <span>{[place.namespace, place.kind].filter(Boolean).join(' / ')}</span>
      {loaded.data && known(loaded.data.replicas) && <span>{t('unit.replicas', { n: count(loaded.data.replicas) })}</span>}
      <From of={loaded.data} />
    </>
  )
  return (
    <>
      <Head title={place.name} about={about}>{loaded.data && <Actions d={loaded.data} reload={loaded.reload} />}</Head>
      <Data of={loaded}>{d => <Content d={d} place={place} query={query} />}</Data>
    </>
  )
}

function mainRow(d: WorkloadDetail): Row | undefined {
  return list(d.rows).find(r => r.type === 'Resource') ?? list(d.rows)[0]
}

function Actions({ d, reload }: { d: WorkloadDetail; reload: () => void }) {
  const [open, setOpen] = useState<Action | 'export' | ''>('')
  const row = mainRow(d)
  if (!row) return null
  const auto = row.adoptionType === 'Auto'
  const actions: Action[] = !d.canAdopt || !row.name ? [] : auto || row.state === 'paused' ? [row.state === 'paused' ? 'resume' : 'pause', 'rollback'] : ['adopt']
  return (
    <>
      <button type="button" class="button" onClick={() => setOpen('export')}>{t('worklist.export')}</button>
      {actions.map(a => (
        <button type="button" key={a} class={'button' + (a === 'adopt' ? ' primary' : a === 'rollback' ? ' danger' : '')} onClick={() => setOpen(a)}>
          {a === 'adopt' ? t('action.adopt') : a === 'pause' ? t('action.pause') : a === 'resume' ? t('action.resume') : t('action.rollback')}
        </button>
      ))}
      {open === 'export' && <ExportDialog items={[itemOf(row)]} onClose={() => setOpen('')} />}
      {open !== '' && open !== 'export' && <ActionDialog action={open} items={[itemOf(row)]} onClose={() => setOpen('')} onDone={reload} />}
    </>
  )
}

function Content({ d, place, query }: { d: WorkloadDetail; place: Place; query: URLSearchParams }) {
  const containers = list(d.containers)
  const row = mainRow(d)
  const container = containers.find(c => c.name === query.get('container')) ?? containers.find(c => c.role === 'app') ?? containers[0]
  const resource: Resource = query.get('resource') === 'memory' || !container?.cpu ? 'memory' : 'cpu'
  const detail = container?.[resource] ?? undefined
  return (
    <>
      <Notes of={d} />
      {row && <Summary d={d} row={row} />}
      <Adoption d={d} row={row} />
      {containers.length > 0 && (
        <div class="row">
          {containers.length > 1 && <Segments label={t('workload.container')} value={container?.name ?? ''} onChange={v => setQuery({ container: v })} options={containers.map(c => ({ value: c.name, label: c.role === 'app' ? c.name : `${c.name} (${c.role})` }))} />}
          <Segments label={t('workload.resource')} value={resource} onChange={v => setQuery({ resource: v })} options={[{ value: 'cpu', label: t('worklist.cpu') }, { value: 'memory', label: t('worklist.memory') }]} />
        </div>
      )}
      <History place={place} container={container?.name ?? ''} resource={resource} recommended={detail?.requestRecommended} query={query} />
      {d.historyError
        ? <div class="card"><Failed failure={failureOf(d.historyError)} /></div>
        : container && detail && <Understand d={d} place={place} container={container} detail={detail} resource={resource} />}
      <div class="columns two">
        <Patch d={d} />
        <Sources d={d} />
      </div>
      <Others rows={list(d.rows).filter(r => r !== row)} currency={d.currency} />
      <Queries of={d} />
    </>
  )
}

function Summary({ d, row }: { d: WorkloadDetail; row: Row }) {
  return (
    <Figures small>
      <Figure label={t('worklist.saving')} value={money(row.savingPerMonth, d.currency)} lead note={t('workload.savingNote')} />
      {(known(row.now?.cpuMilli) || known(row.recommended?.cpuMilli)) && <Figure label={t('workload.cpuPerPod')} value={<Amounts now={row.now?.cpuMilli} to={row.recommended?.cpuMilli} format={milli} />} />}
      {(known(row.now?.memoryBytes) || known(row.recommended?.memoryBytes)) && <Figure label={t('workload.memoryPerPod')} value={<Amounts now={row.now?.memoryBytes} to={row.recommended?.memoryBytes} format={bytes} />} />}
      {(known(row.now?.replicas) || known(row.recommended?.replicas)) && <Figure label={t('workload.replicas')} value={<Amounts now={row.now?.replicas} to={row.recommended?.replicas} format={count} />} />}
      <Figure label={t('worklist.risk')} value={<Risk row={row} />} note={list(row.riskReasons)[0] ?? t('workload.noRisk')} />
      <Figure label={t('worklist.state')} value={<StateTag row={row} />} note={row.state === 'ready' || d.adoption ? undefined : <span class="clamp" title={row.message}>{row.message}</span>} />
    </Figures>
  )
}

function Adoption({ d, row }: { d: WorkloadDetail; row: Row | undefined }) {
  if (!d.adoption) return null
  const bad = row?.state === 'rolledback' || row?.state === 'stopped'
  return (
    <div class={bad ? 'notice warn' : 'notice'} role="status">
      <span><strong>{d.adoption.phase}</strong> {d.adoption.message} <span class="muted">{t('workload.steps', { n: count(d.adoption.steps) })}</span></span>
      {list(d.adoption.remarks).map(r => <span key={r}>{r}</span>)}
    </div>
  )
}

function History({ place, container, resource, recommended, query }: { place: Place; container: string; resource: Resource; recommended: number | null | undefined; query: URLSearchParams }) {
  const cluster = useCluster(place.cluster)
  const [now] = useState(() => Date.now() / 1000)
  const range = rangeOf(query, now)
  const loaded = useData<WorkloadSeries>(cluster.address(paths.series, { namespace: place.namespace, kind: place.kind, name: place.name, from: range.from, to: range.to, points: 1200 }), 0)
  const zoom = (r: [number, number] | null) => navigate(withQuery({ from: r ? String(r[0]) : '', to: r ? String(r[1]) : '' }))
  return (
    <Card title={t('workload.history', { resource: resource === 'cpu' ? t('worklist.cpu') : t('worklist.memory') })} note={t('workload.historyNote')}
      actions={<Segments label={t('workload.range')} value={range.span} onChange={v => navigate(withQuery({ range: v, from: '', to: '' }))} options={spanNames.map(s => ({ value: s, label: rangeLabel(s) }))} />}>
      <Data of={loaded}>{s => <Lines s={s} container={container} resource={resource} recommended={recommended} zoomed={range.span === '' ? [range.from, range.to] : null} onZoom={zoom} />}</Data>
    </Card>
  )
}

function Lines({ s, container, resource, recommended, zoomed, onZoom }: { s: WorkloadSeries; container: string; resource: Resource; recommended: number | null | undefined; zoomed: [number, number] | null; onZoom: (r: [number, number] | null) => void }) {
  const chosen = useMemo(() => list(s.series).filter(x => x.resource === resource && (!x.container || !container || x.container === container)), [s, container, resource])
  const { times, lines } = useMemo(() => linesOf(withRecommended(chosen, resource, recommended)), [chosen, recommended])
  const marks = useMemo(() => marksOf(list(s.marks)), [s])
  if (times.length === 0) return <Learning><p>{t('workload.noSeries')}</p></Learning>
  return (
    <>
      {s.stale && <p class="notice warn">{t('from.stale', { reason: s.stale })}</p>}
      <Chart label={t('workload.history', { resource: resource === 'cpu' ? t('worklist.cpu') : t('worklist.memory') })} unit={resource} times={times} lines={lines} marks={marks} height={320} range={zoomed} onRange={onZoom} />
      <p class="provenance"><From of={s} />{s.thinned && <span>{t('workload.thinned', { step: count(s.stepSeconds) })}</span>}{s.marksError && <span>{t('workload.noMarks')} {s.marksError.message}</span>}</p>
    </>
  )
}

function Understand({ d, place, container, detail, resource }: { d: WorkloadDetail; place: Place; container: ContainerDetail; detail: ResourceDetail; resource: Resource }) {
  if (detail.status !== 'Ready') return <div class="card">{detail.status === 'Learning' || detail.status === 'NoData' ? <Learning><p>{detail.message}</p></Learning> : <Empty title={detail.status}><p>{detail.message}</p></Empty>}</div>
  return (
    <>
      <div class="columns two">
        <Derivation d={d} detail={detail} resource={resource} />
        <WhatIfCard key={container.name + resource} place={place} container={container.name} resource={resource} currency={d.currency} />
      </div>
      {detail.replay && <ReplayTable replay={detail.replay} resource={resource} currency={d.currency} />}
    </>
  )
}

function Patch({ d }: { d: WorkloadDetail }) {
  if (!d.patchYAML) return <Card title={t('workload.patch')}><p class="muted">{t('workload.noPatch')}</p></Card>
  return (
    <Card title={t('workload.patch')} note={t('workload.patchNote')}>
      <Code text={d.patchYAML} label={t('workload.patch')} />
      {d.autoscalerYAML && <><h3>{t('workload.autoscalerPatch')}</h3><Code text={d.autoscalerYAML} label={t('workload.autoscalerPatch')} /></>}
      {Object.entries(d.commands ?? {}).map(([name, command]) => <div key={name}><div class="muted">{name}</div><Code text={command} label={name} /></div>)}
    </Card>
  )
}

function Sources({ d }: { d: WorkloadDetail }) {
  const sources = list(d.sources)
  if (sources.length === 0) return null
  return (
    <Card title={t('workload.sources')} note={t('workload.sourcesNote')}>
      <Scroll>
        <table class="table">
          <thead><tr><th scope="col">{t('workload.source')}</th><th scope="col">{t('worklist.cpu')}</th><th scope="col">{t('worklist.memory')}</th><th scope="col">{t('workload.replicas')}</th><th scope="col">{t('workload.why')}</th></tr></thead>
          <tbody>{sources.map(s => (
            <tr key={s.source + s.why}>
              <th scope="row">{s.source} {s.acts && <Tag tone="good">{t('workload.acts')}</Tag>}</th>
              <td>{s.cpu}</td><td>{s.memory}</td><td>{s.replicas}</td><td>{s.why}</td>
            </tr>
          ))}</tbody>
        </table>
      </Scroll>
    </Card>
  )
}

function Others({ rows, currency }: { rows: Row[]; currency: string }) {
  if (rows.length === 0) return null
  return (
    <Card title={t('workload.others')}>
      <Scroll>
        <table class="table">
          <thead><tr><th scope="col">{t('worklist.type')}</th><th scope="col">{t('worklist.change')}</th><th scope="col">{t('worklist.state')}</th><th scope="col" class="number">{t('worklist.saving')}</th></tr></thead>
          <tbody>{rows.map(r => (
            <tr key={r.type + (r.name ?? '')}><th scope="row">{r.type}</th><td>{r.change || r.message}</td><td><StateTag row={r} /></td><td class="number">{money(r.savingPerMonth, currency)}</td></tr>
          ))}</tbody>
        </table>
      </Scroll>
    </Card>
  )
}

