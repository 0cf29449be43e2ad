import { useMemo, useState } from 'preact/hooks'
import { list, paths, type Cost as Answer, type CostRow } from '../api'
import { t } from '../i18n'
import { count, known, money, percent } from '../lib/format'
import { csv, saveFile } from '../lib/file'
import { setQuery } from '../lib/router'
import { useData, useSettled } from '../lib/use'
import { useCluster } from '../session'
import { From, Notes, Queries } from '../ui/origin'
import { Bar, Card, Figure, Figures, Head, Link, Segments, TextField } from '../ui/parts'
import { Data, Empty } from '../ui/states'
import type { PageProps } from '.'
import { Scroll } from '../ui/scroll'

const groupings = ['namespace', 'workload', 'pool', 'node', 'label'] as const
const windows = ['1h', '1d', '7d', '14d'] as const

export function Cost({ query }: PageProps) {
  const by = groupings.find(g => g === query.get('by')) ?? 'namespace'
  const window = windows.find(w => w === query.get('window')) ?? '1h'
  const label = query.get('label') ?? 'app.kubernetes.io/part-of'
  const [text, setText] = useState(label)
  const settled = useSettled(label, 400)
  const cluster = useCluster()
  const loaded = useData<Answer>(cluster.address(paths.cost, { by, window, ...(by === 'label' ? { label: settled } : {}) }), 120_000)
  const d = loaded.data
  return (
    <>
      <Head title={t('nav.cost')} about={<From of={d} />}>
        {d && <button type="button" class="button" onClick={() => saveFile(`crane-cost-by-${by}.csv`, costCSV(d))}>CSV</button>}
      </Head>
      <div class="filters">
        <div class="field wide"><span id="cost-by">{t('cost.by')}</span><Segments label={t('cost.by')} value={by} onChange={v => setQuery({ by: v }, false)} options={groupings.map(g => ({ value: g, label: t(`cost.by.${g}`) }))} /></div>
        <div class="field wide"><span>{t('cost.window')}</span><Segments label={t('cost.window')} value={window} onChange={v => setQuery({ window: v }, false)} options={windows.map(w => ({ value: w, label: w }))} /></div>
        {by === 'label' && <TextField label={t('worklist.label')} value={text} onInput={v => { setText(v); setQuery({ label: v }) }} hint={list(d?.labelKeys).length > 0 ? t('cost.labelKeys', { keys: list(d?.labelKeys).slice(0, 8).join(', ') }) : ''} />}
      </div>
      <Data of={loaded}>{d => <Content d={d} />}</Data>
    </>
  )
}

export function costCSV(d: Answer): string {
  const line = (name: string, pods: number | '', r: Omit<CostRow, 'name' | 'pods'>) => [name, pods, r.requestPerMonth, r.usagePerMonth ?? '', r.maxPerMonth, d.currency]
  return csv([
    [d.by, 'pods', 'request_per_month', 'usage_per_month', 'max_per_month', 'currency'],
    ...list(d.rows).map(r => line(r.name, r.pods, r)), ...(d.idle ? [line('idle', '', d.idle)] : []),
  ])
}

type Column = 'name' | 'pods' | 'request' | 'usage' | 'max'

function Content({ d }: { d: Answer }) {
  const [order, setOrder] = useState<{ by: Column; down: boolean }>({ by: 'max', down: true })
  const rows = useMemo(() => [...list(d.rows)].sort((a, b) => compare(a, b, order.by) * (order.down ? -1 : 1)), [d, order])
  const total = rows.reduce((s, r) => s + r.maxPerMonth, 0)
  const all = d.clusterPerMonth ?? total
  const largest = Math.max(0, ...rows.map(r => r.maxPerMonth))
  const used = rows.every(r => known(r.usagePerMonth)) ? rows.reduce((s, r) => s + (r.usagePerMonth ?? 0), 0) : null
  const header = (id: Column, label: string, number = true) => (
    <th scope="col" class={number ? 'number' : ''} aria-sort={order.by === id ? (order.down ? 'descending' : 'ascending') : undefined}>
      <button type="button" class="sort" onClick={() => setOrder({ by: id, down: order.by === id ? !order.down : number })}>{label}</button>
    </th>
  )
  if (rows.length === 0) return <div class="card"><Empty title={t('cost.empty')}><p>{t('cost.emptyHint')}</p></Empty></div>
  return (
    <>
      <Notes of={d} />
      {!d.withUsage && <p class="notice">{t('cost.noUsage')}</p>}
      <Figures>
        <Figure label={t('overview.cost')} value={money(d.clusterPerMonth, d.currency)} unit={t('unit.perMonth')} lead note={known(d.clusterPerMonth) ? t('overview.costNote') : t('overview.forbidden')} />
        <Figure label={t('overview.requested')} value={money(rows.reduce((s, r) => s + r.requestPerMonth, 0), d.currency)} unit={t('unit.perMonth')} />
        <Figure label={t('overview.used')} value={money(used, d.currency)} unit={t('unit.perMonth')} />
        <Figure label={t('overview.idle')} value={money(d.idle?.maxPerMonth, d.currency)} unit={t('unit.perMonth')} note={t('cost.idleNote')} />
      </Figures>
      <Card title={t('cost.table')} note={t('cost.tableNote')}>
        <Scroll>
          <table class="table">
            <thead><tr>{header('name', t(`cost.by.${(groupings.find(g => g === d.by) ?? 'namespace')}`), false)}{header('pods', t('cost.pods'))}{header('request', t('cost.request'))}{header('usage', t('cost.usage'))}{header('max', t('cost.max'))}<th scope="col">{t('cost.share')}</th></tr></thead>
            <tbody>
              {rows.slice(0, maxRows).map(r => (
                <tr key={r.name}>
                  <th scope="row"><Name d={d} name={r.name} /></th><td class="number">{count(r.pods)}</td>
                  <td class="number">{money(r.requestPerMonth, d.currency)}</td><td class="number">{money(r.usagePerMonth, d.currency)}</td><td class="number"><strong>{money(r.maxPerMonth, d.currency)}</strong></td>
                  <td><Bar label={percent(all > 0 ? r.maxPerMonth / all : null, 1)} parts={parts(r, largest)} /> {percent(all > 0 ? r.maxPerMonth / all : null, 1)}</td>
                </tr>
              ))}
              {d.idle && <tr><th scope="row">{t('overview.idle')}</th><td class="number" /><td class="number">{money(d.idle.requestPerMonth, d.currency)}</td><td class="number">{money(d.idle.usagePerMonth, d.currency)}</td><td class="number"><strong>{money(d.idle.maxPerMonth, d.currency)}</strong></td><td>{percent(all > 0 ? d.idle.maxPerMonth / all : null, 1)}</td></tr>}
            </tbody>
          </table>
        </Scroll>
        {rows.length > maxRows && <p class="muted">{t('cost.more', { n: count(rows.length - maxRows) })}</p>}
      </Card>
      <Queries of={d} />
    </>
  )
}

/** Use and unused request as parts of a bar, whose full width is the largest group. */
function parts(r: CostRow, largest: number): { share: number; tone?: string }[] {
  if (largest <= 0) return []
  const used = Math.min(r.usagePerMonth ?? 0, r.maxPerMonth)
  return [{ share: used / largest }, { share: (r.maxPerMonth - used) / largest, tone: 'request' }]
}

const maxRows = 500

function Name({ d, name }: { d: Answer; name: string }) {
  if (d.by === 'namespace') return <Link to={`/worklist?namespace=${encodeURIComponent(name)}`}>{name}</Link>
  return <>{name || t('cost.unlabeled')}</>
}

function compare(a: CostRow, b: CostRow, by: Column): number {
  switch (by) {
    case 'name': return a.name < b.name ? -1 : 1
    case 'pods': return a.pods - b.pods
    case 'request': return a.requestPerMonth - b.requestPerMonth
    case 'usage': return (a.usagePerMonth ?? -1) - (b.usagePerMonth ?? -1)
    default: return a.maxPerMonth - b.maxPerMonth
  }
}
