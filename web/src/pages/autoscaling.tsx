import { useMemo } from 'preact/hooks'
import { list, paths, workloadPath, type Autoscaling as Answer, type Condition, type Forecast, type ForecastMetric, type HorizontalAutoscaler, type VerticalAutoscaler } from '../api'
import { t } from '../i18n'
import { count, duration, known, missing, percent } from '../lib/format'
import { setQuery } from '../lib/router'
import { linesOf, marksOf } from '../lib/series'
import { useData } from '../lib/use'
import { useCluster } from '../session'
import { Chart } from '../ui/chart'
import { From, Notes, Queries } from '../ui/origin'
import { Card, Head, Link, Tag, Time } from '../ui/parts'
import { Data, Empty, Learning } from '../ui/states'
import type { PageProps } from '.'
import { Scroll } from '../ui/scroll'

export function Autoscaling({ query }: PageProps) {
  const cluster = useCluster()
  const loaded = useData<Answer>(cluster.address(paths.autoscaling), 30_000)
  return (
    <>
      <Head title={t('nav.autoscaling')} about={<From of={loaded.data} />} />
      <Data of={loaded}>{d => <Content d={d} query={query} />}</Data>
    </>
  )
}

function keyOf(h: { namespace: string; name: string }): string { return h.namespace + '/' + h.name }

function Content({ d, query }: { d: Answer; query: URLSearchParams }) {
  const horizontal = list(d.horizontal)
  const vertical = list(d.vertical)
  const chosen = horizontal.find(h => keyOf(h) === query.get('name'))
  if (horizontal.length === 0 && vertical.length === 0) {
    return <><Notes of={d} partial={d.hidden} /><div class="card"><Empty title={t('autoscaling.empty')}><p>{t('autoscaling.emptyHint')}</p></Empty></div></>
  }
  return (
    <>
      <Notes of={d} partial={d.hidden} />
      {horizontal.length > 0 && <Horizontal rows={horizontal} chosen={chosen} />}
      {chosen && <Detail h={chosen} />}
      {vertical.length > 0 && <Vertical rows={vertical} />}
      <Queries of={d} />
    </>
  )
}

function Conditions({ of }: { of: readonly Condition[] }) {
  return <>{of.filter(c => c.status !== 'True' || c.type === 'Ready').map(c => <Tag key={c.type} tone={c.status === 'True' ? 'good' : 'warn'} title={c.message}>{c.status === 'True' ? c.type : `${c.type}: ${c.reason ?? c.status}`}</Tag>)}</>
}

function Horizontal({ rows, chosen }: { rows: readonly HorizontalAutoscaler[]; chosen: HorizontalAutoscaler | undefined }) {
  return (
    <Card title={t('autoscaling.horizontal')} note={t('autoscaling.horizontalNote')}>
      <Scroll>
        <table class="table">
          <thead><tr>
            <th scope="col">{t('autoscaling.name')}</th><th scope="col">{t('autoscaling.strategy')}</th><th scope="col" class="number">{t('autoscaling.now')}</th>
            <th scope="col" class="number">{t('autoscaling.desired')}</th><th scope="col" class="number">{t('autoscaling.alone')}</th><th scope="col" class="number">{t('autoscaling.bounds')}</th>
            <th scope="col">{t('autoscaling.winner')}</th><th scope="col">{t('worklist.state')}</th>
          </tr></thead>
          <tbody>{rows.map(h => (
            <tr key={h.cluster + keyOf(h)}>
              <th scope="row">
                <button type="button" class="button small" aria-pressed={h === chosen} onClick={() => setQuery({ name: h === chosen ? '' : keyOf(h) }, false)}>{keyOf(h)}</button>
                <div class="muted"><Link to={workloadPath(h.target)}>{h.target.kind}/{h.target.name}</Link></div>
              </th>
              <td><Tag tone={h.strategy === 'Preview' ? 'warn' : ''}>{h.strategy}</Tag></td>
              <td class="number">{count(h.currentReplicas)}</td><td class="number"><strong>{count(h.desiredReplicas)}</strong></td>
              <td class="number">{count(h.withoutForecast)}</td><td class="number">{h.minReplicas}–{h.maxReplicas}</td>
              <td>{h.winner || missing}{h.why && <div class="muted">{h.why}</div>}</td>
              <td><Conditions of={list(h.conditions)} /></td>
            </tr>
          ))}</tbody>
        </table>
      </Scroll>
    </Card>
  )
}

function Detail({ h }: { h: HorizontalAutoscaler }) {
  const cluster = useCluster(h.cluster)
  const loaded = useData<Forecast>(h.prediction ? cluster.address(paths.forecast, { namespace: h.namespace, name: h.name }) : null, 60_000)
  const crons = list(h.crons)
  return (
    <>
      <Card title={t('autoscaling.forecastOf', { name: keyOf(h) })} note={h.prediction ? t('autoscaling.algorithm', { algorithm: h.prediction.algorithm, window: duration(h.prediction.windowSeconds) }) : ''}>
        {h.prediction ? <Data of={loaded}>{f => <Metrics f={f} />}</Data> : <p class="muted">{t('autoscaling.noForecast')}</p>}
      </Card>
      <div class="columns two">
        <Card title={t('autoscaling.proposals')} note={t('autoscaling.proposalsNote')}>
          <Scroll><table class="table">
            <thead><tr><th scope="col">{t('autoscaling.metric')}</th><th scope="col">{t('autoscaling.kind')}</th><th scope="col" class="number">{t('autoscaling.value')}</th><th scope="col" class="number">{t('workload.replicas')}</th></tr></thead>
            <tbody>{list(h.proposals).map(p => (
              <tr key={p.kind + p.name}>
                <th scope="row">{p.name} {p.name === h.winner && <Tag tone="good">{t('autoscaling.wins')}</Tag>}{p.message && <div class="muted">{p.message}</div>}</th>
                <td>{p.kind}</td><td class="number">{[p.current, p.target].filter(Boolean).join(' / ') || missing}</td><td class="number">{count(p.replicas)}</td>
              </tr>
            ))}</tbody>
          </table></Scroll>
        </Card>
        <Card title={t('autoscaling.crons')}>
          {crons.length === 0 ? <p class="muted">{t('autoscaling.noCrons')}</p> : (
            <Scroll><table class="table">
              <thead><tr><th scope="col">{t('autoscaling.name')}</th><th scope="col">{t('autoscaling.schedule')}</th><th scope="col" class="number">{t('workload.replicas')}</th><th scope="col">{t('autoscaling.next')}</th></tr></thead>
              <tbody>{crons.map(c => (
                <tr key={c.name}>
                  <th scope="row">{c.name} {c.active && <Tag tone="good">{t('autoscaling.active')}</Tag>}{c.message && <div class="muted">{c.message}</div>}</th>
                  <td><code>{c.start}</code> – <code>{c.end}</code> {c.timeZone}</td><td class="number">{count(c.replicas)}</td>
                  <td>{(c.active ? c.nextEnd : c.nextStart) ? <Time at={c.active ? c.nextEnd : c.nextStart} /> : missing}</td>
                </tr>
              ))}</tbody>
            </table></Scroll>
          )}
        </Card>
      </div>
    </>
  )
}

function Metrics({ f }: { f: Forecast }) {
  const metrics = list(f.metrics)
  if (metrics.length === 0) return <Learning />
  return (
    <div class="stack">
      <Notes of={f} />
      <Replicas f={f} />
      {metrics.map(m => <Metric key={m.name} m={m} />)}
      <p class="provenance"><From of={f} /></p>
    </div>
  )
}

/** Replicas now, those of the HPA alone against those with the forecast, and the next windows of schedules. */
function Replicas({ f }: { f: Forecast }) {
  const { times, lines } = useMemo(() => linesOf(list(f.replicas)), [f])
  const marks = useMemo(() => marksOf(list(f.marks)).filter(m => times.length > 0 && m.t <= times.at(-1)!), [f, times])
  if (times.length === 0) return null
  return (
    <div class="stack">
      <h3>{t('autoscaling.replicas')}</h3>
      <p class="muted">{t('autoscaling.replicasNote')}</p>
      <Chart label={t('autoscaling.replicas')} unit="replicas" times={times} lines={lines} marks={marks} height={220} />
    </div>
  )
}

function Metric({ m }: { m: ForecastMetric }) {
  const { times, lines } = useMemo(() => linesOf(list(m.series)), [m])
  const unit = list(m.series)[0]?.unit === 'cores' ? 'cpu' : list(m.series)[0]?.unit === 'bytes' ? 'memory' : 'value'
  return (
    <div class="stack">
      <div class="row"><h3>{m.name}</h3><Tag tone={m.ready ? 'good' : 'warn'}>{m.ready ? t('autoscaling.ready') : m.reason || t('rec.learning')}</Tag>
        {known(m.skill) && <span class="muted">{t('autoscaling.skill', { skill: percent(m.skill) })}</span>}
        <Tag tone={m.used ? 'good' : ''} title={m.unused ?? ''}>{m.used ? t('autoscaling.used') : t('autoscaling.unused')}</Tag></div>
      {!m.used && m.unused && <p class="muted">{m.unused}</p>}
      {times.length === 0 ? <Learning /> : <Chart label={m.name} unit={unit} times={times} lines={lines} height={260} />}
    </div>
  )
}

function Vertical({ rows }: { rows: readonly VerticalAutoscaler[] }) {
  return (
    <Card title={t('autoscaling.vertical')}>
      <Scroll><table class="table">
        <thead><tr><th scope="col">{t('autoscaling.name')}</th><th scope="col">{t('autoscaling.mode')}</th><th scope="col">{t('workload.container')}</th><th scope="col">{t('workload.resource')}</th><th scope="col">{t('autoscaling.action')}</th><th scope="col">{t('worklist.change')}</th><th scope="col">{t('workload.why')}</th></tr></thead>
        <tbody>{rows.flatMap(v => {
          const decisions = list(v.decisions)
          const head = <th scope="row" rowSpan={Math.max(1, decisions.length)}>{keyOf(v)}<div class="muted"><Link to={workloadPath(v.target)}>{v.target.kind}/{v.target.name}</Link></div><Conditions of={list(v.conditions)} /></th>
          if (decisions.length === 0) return [<tr key={keyOf(v)}>{head}<td>{v.updateMode}</td><td colSpan={5} class="muted">{t('autoscaling.noDecision')}</td></tr>]
          return decisions.map((x, i) => (
            <tr key={keyOf(v) + x.container + x.resource}>
              {i === 0 && head}<td>{v.updateMode}</td><td>{x.container}</td><td>{x.resource}</td><td><Tag tone={x.action === 'Raise' || x.action === 'Lower' ? 'accent' : ''}>{x.action}</Tag></td>
              <td class="nowrap">{x.current || missing}<span class="arrow">→</span>{x.target || missing}</td><td>{[x.estimator, x.message].filter(Boolean).join(': ')}</td>
            </tr>
          ))
        })}</tbody>
      </table></Scroll>
    </Card>
  )
}
