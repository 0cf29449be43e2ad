import { useMemo } from 'preact/hooks'
import { list, paths, type Node, type NodeList } from '../api'
import { t, tOr } from '../i18n'
import { bytes, count, known, milli, missing, money, percent } from '../lib/format'
import { setQuery } from '../lib/router'
import { useData } from '../lib/use'
import { packNodes } from '../lib/packing'
import { useCluster } from '../session'
import { From, Notes, Queries } from '../ui/origin'
import { Bar, Card, Figure, Figures, Head, Segments, Select, Tag, Time } from '../ui/parts'
import { Data, Empty } from '../ui/states'
import type { PageProps } from '.'
import { Scroll } from '../ui/scroll'
import { PlacementCard } from './placement'

export function Nodes({ query }: PageProps) {
  const cluster = useCluster()
  const loaded = useData<NodeList>(cluster.address(paths.nodes), 30_000)
  return (
    <>
      <Head title={t('nav.nodes')} about={<From of={loaded.data} />} />
      <Data of={loaded}>{d => list(d.nodes).length === 0 ? <div class="card"><Empty title={t('nodes.empty')} /></div> : <Content d={d} query={query} />}</Data>
    </>
  )
}

type Measure = 'cpu' | 'memory' | 'cpuRequest' | 'memoryRequest'
const fallbackLoads: Record<'cpu' | 'memory', string> = { cpu: 'cpu_usage_avg_5m', memory: 'mem_usage_avg_5m' }

export function shareOf(n: Node, m: Measure, metric: string): number | null {
  if (m === 'cpuRequest') return n.cpuMilli > 0 ? n.cpuRequestedMilli / n.cpuMilli : null
  if (m === 'memoryRequest') return n.memoryBytes > 0 ? n.memoryRequestedBytes / n.memoryBytes : null
  const v = n.loads?.[metric]
  return known(v) ? v : null
}

/** The class of a share: above the water mark the warm colors begin. */
export function heatClass(share: number | null, mark: number): string {
  if (share === null) return ''
  if (share >= mark) return share >= mark + (1 - mark) / 2 ? 'h5' : 'h4'
  const part = share / mark
  return part >= 0.85 ? 'h3' : part >= 0.5 ? 'h2' : part >= 0.2 ? 'h1' : 'h0'
}

/** The share from which colors are warm where the metric has no water mark. */
const warmFrom = 0.8

function Content({ d, query }: { d: NodeList; query: URLSearchParams }) {
  const nodes = list(d.nodes)
  const measure = (['cpu', 'memory', 'cpuRequest', 'memoryRequest'] as const).find(m => m === query.get('measure')) ?? 'cpu'
  const prefix = measure === 'memory' ? 'mem_' : 'cpu_'
  const metrics = useMemo(() => [...new Set(nodes.flatMap(n => Object.keys(n.loads ?? {})))].filter(m => m.startsWith(prefix)).sort(), [d, prefix])
  const metric = metrics.includes(query.get('metric') ?? '') ? query.get('metric')! : measure === 'cpu' || measure === 'memory' ? fallbackLoads[measure] : ''
  const isLoad = measure === 'cpu' || measure === 'memory'
  const set = d.waterMarks?.[metric]
  const mark = isLoad ? set ?? warmFrom : 1
  const chosen = nodes.find(n => n.name === query.get('node'))
  return (
    <>
      <Notes of={d} />
      <Totals d={d} />
      <Card title={t('nodes.heat')} note={isLoad ? t(known(set) ? 'nodes.heatNote' : 'nodes.noMarkNote', { mark: percent(mark), metric }) : t('nodes.requestNote')}
        actions={
          <>
            <Segments label={t('nodes.measure')} value={measure} onChange={v => setQuery({ measure: v, metric: '' })} options={[
              { value: 'cpu', label: t('nodes.cpuLoad') }, { value: 'memory', label: t('nodes.memoryLoad') }, { value: 'cpuRequest', label: t('nodes.cpuRequest') }, { value: 'memoryRequest', label: t('nodes.memoryRequest') }]} />
          </>
        }>
        {isLoad && metrics.length > 1 && <div class="filters"><Select label={t('nodes.metric')} value={metric} onChange={v => setQuery({ metric: v })} options={metrics.map(m => ({ value: m, label: m }))} /></div>}
        <div class="heat">
          {nodes.map(n => {
            const share = shareOf(n, measure, metric)
            return (
              <button type="button" key={n.name} class={heatClass(share, mark)} aria-pressed={n === chosen} onClick={() => setQuery({ node: n === chosen ? '' : n.name })} title={n.name}>
                <span class="name">{n.name}</span><span class="load">{percent(share)}</span>
                <span class="name">{!n.ready ? t('nodes.notReady') : n.unschedulable ? t('nodes.cordoned') : t('nodes.pods', { n: n.pods })}</span>
              </button>
            )
          })}
        </div>
        <Key mark={mark} />
      </Card>
      {chosen && <Detail n={chosen} d={d} />}
      <PlacementCard pod={query.get('pod') ?? ''} />
      <Table d={d} />
      <Queries of={d} />
    </>
  )
}

function Key({ mark }: { mark: number }) {
  const steps: [string, string][] = [['h0', '0'], ['h1', percent(mark * 0.2)], ['h2', percent(mark * 0.5)], ['h3', percent(mark * 0.85)], ['h4', percent(mark)], ['h5', percent(mark + (1 - mark) / 2)]]
  return <div class="heat-key">{steps.map(([c, text]) => <span key={c}><i class={c} />≥ {text}</span>)}</div>
}

function Totals({ d }: { d: NodeList }) {
  const nodes = list(d.nodes)
  const sum = (f: (n: Node) => number) => nodes.reduce((s, n) => s + f(n), 0)
  const cpu = sum(n => n.cpuMilli)
  const memory = sum(n => n.memoryBytes)
  const used = (metric: string, f: (n: Node) => number, all: number) => {
    const loaded = nodes.filter(n => known(n.loads?.[metric]))
    return loaded.length === 0 || all === 0 ? null : loaded.reduce((s, n) => s + n.loads![metric]! * f(n), 0) / loaded.reduce((s, n) => s + f(n), 0)
  }
  const prices = nodes.map(n => n.pricePerMonth)
  const packing = packNodes(nodes)
  return (
    <Figures small>
      <Figure label={t('nav.nodes')} value={count(nodes.length)} note={prices.every(known) ? `${money(prices.reduce((s, p) => s + p!, 0), d.currency)} ${t('unit.perMonth')}` : undefined} />
      <Figure label={t('nodes.cpuRequested')} value={percent(cpu > 0 ? sum(n => n.cpuRequestedMilli) / cpu : null)} note={t('nodes.usedNote', { used: percent(used(fallbackLoads.cpu, n => n.cpuMilli, cpu)) })} />
      <Figure label={t('nodes.memoryRequested')} value={percent(memory > 0 ? sum(n => n.memoryRequestedBytes) / memory : null)} note={t('nodes.usedNote', { used: percent(used(fallbackLoads.memory, n => n.memoryBytes, memory)) })} />
      <Figure label={t('nodes.hot')} value={count(nodes.filter(n => list(n.above).length > 0).length)} note={t('nodes.hotNote')} />
      <Figure label={t('nodes.packing')} value={packing ? t('nodes.packingValue', { n: count(packing.nodes) }) : missing} note={packing ? t('nodes.packingNote', { free: count(packing.free), price: money(packing.price, d.currency) }) : t('nodes.noPacking')} />
    </Figures>
  )
}

function Detail({ n, d }: { n: Node; d: NodeList }) {
  const loads = Object.entries(n.loads ?? {}).sort()
  const events = list(n.events)
  const zones = list(n.zones)
  return (
    <Card title={n.name} note={[n.pool, known(n.pricePerMonth) && money(n.pricePerMonth, d.currency) + ' ' + t('unit.perMonth')].filter(Boolean).join(' · ')}
      actions={<button type="button" class="button small plain" onClick={() => setQuery({ node: '' })}>{t('action.close')}</button>}>
      <div class="columns two">
        <div class="stack">
          <h3>{t('nodes.loads')}</h3>
          {loads.length === 0 ? <p class="muted">{t('nodes.noLoads')}</p> : (
            <Scroll><table class="table">
              <thead><tr><th scope="col">{t('nodes.metric')}</th><th scope="col" class="number">{t('nodes.load')}</th><th scope="col" class="number">{t('nodes.waterMark')}</th></tr></thead>
              <tbody>{loads.map(([m, v]) => <tr key={m}><th scope="row"><code>{m}</code> {list(n.above).includes(m) && <Tag tone="bad">{t('nodes.above')}</Tag>}</th><td class="number">{percent(v, 1)}</td><td class="number">{percent(d.waterMarks?.[m])}</td></tr>)}</tbody>
            </table></Scroll>
          )}
          {!!n.loadAt && <p class="muted">{t('nodes.loadAt')} <Time at={n.loadAt} />{known(n.hotValue) && <> · {t('nodes.hotValue', { value: count(n.hotValue) })}</>}</p>}
        </div>
        <div class="stack">
          <h3>{t('nodes.zones')}</h3>
          {zones.length === 0 ? <p class="muted">{t('nodes.noZones')}</p> : (
            <Scroll><table class="table">
              <thead><tr><th scope="col">{t('nodes.zone')}</th><th scope="col" class="number">{t('nodes.cpus')}</th><th scope="col" class="number">{t('nodes.assigned')}</th><th scope="col">{t('nodes.pinned')}</th></tr></thead>
              <tbody>{zones.map(z => <tr key={z.name}><th scope="row">{z.name}</th><td class="number">{milli(z.cpuMilli)}</td><td class="number">{milli(z.cpuAllocatedMilli)}</td><td>{list(z.pods).join(', ') || missing}</td></tr>)}</tbody>
            </table></Scroll>
          )}
          <h3>{t('nodes.agent')}</h3>
          {list(n.taints).length > 0 && <div class="row">{list(n.taints).map(x => <Tag tone="warn" key={x}>{x}</Tag>)}</div>}
          {list(n.conditions).map(c => <div key={c.type}><Tag tone={c.status === 'True' ? 'warn' : ''}>{c.type}: {c.status}</Tag> <span class="muted">{c.message}</span></div>)}
          {events.length === 0 ? <p class="muted">{t('nodes.noEvents')}</p> : <ul class="attention">{events.map((e, i) => <li key={i}><Time at={e.at} /><span>{e.text}</span><Tag>{tOr('mark.' + e.kind, e.kind)}</Tag></li>)}</ul>}
        </div>
      </div>
    </Card>
  )
}

function Table({ d }: { d: NodeList }) {
  return (
    <Card title={t('nodes.table')}>
      <Scroll>
        <table class="table">
          <thead><tr><th scope="col">{t('nodes.node')}</th><th scope="col">{t('nodes.pool')}</th><th scope="col" class="number">{t('nodes.cpuCapacity')}</th><th scope="col">{t('nodes.cpuRequest')}</th><th scope="col" class="number">{t('nodes.cpuLoad')}</th><th scope="col" class="number">{t('nodes.memoryCapacity')}</th><th scope="col">{t('nodes.memoryRequest')}</th><th scope="col" class="number">{t('nodes.memoryLoad')}</th><th scope="col" class="number">{t('overview.cost')}</th></tr></thead>
          <tbody>{list(d.nodes).map(n => {
            const cpu = shareOf(n, 'cpuRequest', '')
            const memory = shareOf(n, 'memoryRequest', '')
            return (
              <tr key={n.name}>
                <th scope="row">{n.name} {list(n.above).length > 0 && <Tag tone="bad">{t('nodes.above')}</Tag>}</th><td>{n.pool || missing}</td>
                <td class="number">{milli(n.cpuMilli)}</td><td><Bar label={percent(cpu)} parts={[{ share: cpu ?? 0, tone: 'request' }]} /> {percent(cpu)}</td><td class="number">{percent(n.loads?.[fallbackLoads.cpu])}</td>
                <td class="number">{bytes(n.memoryBytes)}</td><td><Bar label={percent(memory)} parts={[{ share: memory ?? 0, tone: 'request' }]} /> {percent(memory)}</td><td class="number">{percent(n.loads?.[fallbackLoads.memory])}</td>
                <td class="number">{money(n.pricePerMonth, d.currency)}</td>
              </tr>
            )
          })}</tbody>
        </table>
      </Scroll>
    </Card>
  )
}
