import { useMemo, useState } from 'preact/hooks'
import { itemOf, list, paths, placeOf, workloadPath, type Row, type State, type Worklist as Answer } from '../api'
import { t, tOr, type Key } from '../i18n'
import { age, bytes, change, count, known, milli, missing, money } from '../lib/format'
import { navigate, setQuery } from '../lib/router'
import { useData } from '../lib/use'
import { facet, filterRows, index, labelFacet, noFilter, sortRows, sumSavings, type Filter, type Indexed } from '../lib/worklist'
import { useSession } from '../session'
import { ActionDialog, ExportDialog } from '../ui/actions'
import { Grid, type Column } from '../ui/grid'
import { From, Notes } from '../ui/origin'
import { Head, Link, Select, Tag, TextField } from '../ui/parts'
import { Data, Empty } from '../ui/states'
import type { PageProps } from '.'

export function Worklist({ query }: PageProps) {
  const loaded = useData<Answer>(paths.worklist, 60_000)
  return (
    <>
      <Head title={t('nav.worklist')} about={<From of={loaded.data} />} />
      <Data of={loaded}>{d => list(d.rows).length === 0 && list(d.problems).length === 0
        ? <div class="card"><Empty title={t('worklist.empty')}><p>{t('worklist.emptyHint')}</p><Link to="/rules" class="button">{t('worklist.newRule')}</Link></Empty></div>
        : <List d={d} query={query} reload={loaded.reload} />}
      </Data>
    </>
  )
}

function filterOf(query: URLSearchParams): Filter {
  const f = { ...noFilter }
  for (const key of Object.keys(f) as (keyof Filter)[]) f[key] = query.get(key) ?? ''
  return f
}

const nothing: ReadonlySet<string> = new Set()
const cleared: Record<string, string> = { ...noFilter }

function List({ d, query, reload }: { d: Answer; query: URLSearchParams; reload: () => void }) {
  const [selected, setSelected] = useState<ReadonlySet<string>>(nothing)
  const filter = filterOf(query)
  const by = query.get('sort') ?? 'saving'
  const down = (query.get('order') ?? 'desc') === 'desc'
  const all = useMemo(() => index(list(d.rows)), [d])
  const sorted = useMemo(() => sortRows(all, by, down), [all, by, down])
  const rows = useMemo(() => filterRows(sorted, filter), [sorted, ...Object.values(filter)])
  const sums = useMemo(() => sumSavings(rows), [rows])
  const columns = useMemo(() => columnsOf(d), [d])
  const select = (keys: string[], on: boolean) => {
    const next = new Set(selected)
    for (const k of keys) if (on) next.add(k); else next.delete(k)
    setSelected(next)
  }
  return (
    <>
      <Notes of={d} partial={d.hidden} />
      {list(d.problems).map(p => <p class="notice bad" role="alert" key={p.cluster}><strong>{p.cluster}</strong> {p.error.message} {p.error.next}</p>)}
      <Filters all={all} filter={filter} />
      <section class="card flush" aria-label={t('nav.worklist')}>
        <div class="spread">
          <p role="status" id="rows">{t('worklist.rows', { n: count(rows.length), total: count(all.length) })} · <strong>{t('worklist.sum', { saving: money(sums.saving, d.currency) })}</strong>
            {sums.cost > 0 && <span class="muted"> · {t('worklist.cost', { cost: money(sums.cost, d.currency) })}</span>}</p>
        </div>
        {rows.length === 0
          ? <Empty title={t('worklist.none')}><button type="button" class="button" onClick={() => setQuery(cleared)}>{t('action.clear')}</button></Empty>
          : <Grid label={t('nav.worklist')} rows={rows} columns={columns} order={{ by, down }} keyOf={keyOf} nameOf={nameOf} selected={selected} onSelect={select}
              onOrder={o => setQuery({ sort: o.by, order: o.down ? '' : 'asc' })} onOpen={r => navigate(workloadPath(placeOf(r.row)))} minWidth="76rem" />}
        <Selection d={d} all={all} selected={selected} onClear={() => setSelected(nothing)} reload={reload} />
      </section>
    </>
  )
}

const keyOf = (r: Indexed) => r.id
const nameOf = (r: Indexed) => [r.row.namespace, r.row.workload, r.row.type].filter(Boolean).join(' ')

function Filters({ all, filter }: { all: Indexed[]; filter: Filter }) {
  const [text, setText] = useState(filter.text)
  const options = useMemo(() => ({
    cluster: facet(all, r => r.cluster), namespace: facet(all, r => r.namespace), kind: facet(all, r => r.kind),
    type: facet(all, r => r.type), state: facet(all, r => r.state), label: labelFacet(all),
  }), [all])
  const select = (key: Exclude<keyof Filter, 'text'>, name: string, text = (v: string) => v) => (options[key].length > 1 || filter[key]) && (
    <Select label={name} value={filter[key]} onChange={v => setQuery({ [key]: v })}
      options={[{ value: '', label: t('worklist.all') }, ...options[key].map(o => ({ value: o.value, label: `${text(o.value)} (${count(o.n)})` }))]} />
  )
  return (
    <div class="filters" role="search">
      <TextField search label={t('worklist.search')} value={filter.text === '' ? '' : text} placeholder={t('worklist.searchHint')} onInput={v => { setText(v); setQuery({ text: v }) }} />
      {select('cluster', t('worklist.cluster'))}
      {select('namespace', t('worklist.namespace'))}
      {select('label', t('worklist.label'))}
      {select('kind', t('worklist.kind'))}
      {select('type', t('worklist.type'))}
      {select('state', t('worklist.state'), stateText)}
    </div>
  )
}

export function stateText(state: string): string { return tOr('rec.' + state, state) }

export function Amounts({ now, to, format }: { now: number | null | undefined; to: number | null | undefined; format: (v: number | null | undefined) => string }) {
  if (!known(now) && !known(to)) return <span class="muted">{missing}</span>
  return <>{format(now)}<span class="arrow">→</span>{format(to)} <span class="muted">{known(now) && known(to) && now !== 0 ? change(now, to) : ''}</span></>
}

export function Risk({ row }: { row: Row }) {
  const [tone, key]: [string, Key] = row.risk < 34 ? ['good', 'risk.low'] : row.risk < 67 ? ['warn', 'risk.medium'] : ['bad', 'risk.high']
  return <Tag tone={tone}>{t(key)} {row.risk}</Tag>
}

const tones: Record<State, string> = {
  ready: 'accent', clear: '', learning: '', nodata: '', refused: 'warn', failed: 'bad', adopting: 'good', adopted: 'good', paused: 'warn', rolledback: 'bad', stopped: 'warn',
}

export function StateTag({ row }: { row: Row }) {
  return <Tag tone={tones[row.state] ?? ''} title={row.message}>{stateText(row.state)}</Tag>
}

function columnsOf(d: Answer): Column<Indexed>[] {
  return [
    { id: 'workload', label: t('worklist.workload'), width: 'minmax(11rem, 2fr)', title: ({ row: r }) => `${r.namespace ?? ''}/${r.kind}/${r.workload}`,
      cell: ({ row: r }) => <span class="two"><Link to={workloadPath(placeOf(r))}>{r.workload}</Link><small>{[r.cluster, r.namespace, r.kind].filter(Boolean).join(' · ')}</small></span> },
    { id: 'saving', label: t('worklist.savingShort'), width: '6rem', number: true,
      cell: ({ row: r }) => <strong class={known(r.savingPerMonth) && r.savingPerMonth < 0 ? 'warn' : ''}>{money(r.savingPerMonth, d.currency)}</strong> },
    { id: 'cpu', label: t('worklist.cpu'), width: '11.5rem', number: true, wide: true, cell: ({ row: r }) => <Amounts now={r.now?.cpuMilli} to={r.recommended?.cpuMilli} format={milli} /> },
    { id: 'memory', label: t('worklist.memory'), width: '13.5rem', number: true, wide: true, cell: ({ row: r }) => known(r.now?.replicas) || known(r.recommended?.replicas)
      ? <Amounts now={r.now?.replicas} to={r.recommended?.replicas} format={v => t('unit.replicas', { n: count(v) })} /> : <Amounts now={r.now?.memoryBytes} to={r.recommended?.memoryBytes} format={bytes} /> },
    { id: 'risk', label: t('worklist.risk'), width: '6.5rem', number: true, title: ({ row: r }) => list(r.riskReasons).join('\n'), cell: ({ row }) => <Risk row={row} /> },
    { id: 'state', label: t('worklist.state'), width: '6.5rem', wide: true, title: ({ row: r }) => r.message ?? '', cell: ({ row }) => <StateTag row={row} /> },
    { id: 'type', label: t('worklist.type'), width: '5.5rem', wide: true, cell: ({ row: r }) => r.type },
    { id: 'age', label: t('worklist.age'), width: '3.5rem', number: true, wide: true, cell: ({ row: r }) => age(r.updated || null, d.asOf) },
  ]
}

function Selection({ d, all, selected, onClear, reload }: { d: Answer; all: Indexed[]; selected: ReadonlySet<string>; onClear: () => void; reload: () => void }) {
  const [open, setOpen] = useState<'' | 'export' | 'dryrun' | 'adopt'>('')
  const session = useSession()
  if (selected.size === 0) return <p class="selection idle">{t('worklist.selectHint')}</p>
  const rows = all.filter(r => selected.has(r.id))
  const items = rows.map(r => itemOf(r.row))
  const mayAdopt = list(session.clusters).some(c => c.craneInstalled && c.rights.adopt)
  const close = () => setOpen('')
  return (
    <div class="selection">
      <strong>{t('worklist.selected', { n: count(rows.length), saving: money(sumSavings(rows).saving, d.currency) })}</strong>
      <span class="row">
        <button type="button" class="button small" onClick={() => setOpen('export')}>{t('worklist.export')}</button>
        {mayAdopt && <button type="button" class="button small" onClick={() => setOpen('dryrun')}>{t('worklist.dryRun')}</button>}
        {mayAdopt && <button type="button" class="button small primary" onClick={() => setOpen('adopt')}>{t('worklist.adopt')}</button>}
        <button type="button" class="button small plain" onClick={onClear}>{t('worklist.clearSelection')}</button>
      </span>
      {open === 'export' && <ExportDialog items={items} onClose={close} />}
      {(open === 'dryrun' || open === 'adopt') && <ActionDialog action="adopt" items={items} onlyDryRun={open === 'dryrun'} onClose={close} onDone={reload} />}
    </div>
  )
}

