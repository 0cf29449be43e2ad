import { list, paths, workloadPath, placeOf, type Overview as Answer } from '../api'
import { t, tOr } from '../i18n'
import { bytes, count, duration, known, milli, money, percent } from '../lib/format'
import { useData } from '../lib/use'
import { useCluster, useSession } from '../session'
import { Chart, type Line } from '../ui/chart'
import { From, Notes, Queries } from '../ui/origin'
import { Bar, Card, Figure, Figures, Head, Link, Tag, Time } from '../ui/parts'
import { failureOf } from '../lib/http'
import { Data, Empty, Failed } from '../ui/states'
import { Risk } from './worklist'
import { Scroll } from '../ui/scroll'

export function Overview() {
  const cluster = useCluster()
  const loaded = useData<Answer>(cluster.address(paths.overview), 60_000)
  return (
    <>
      <Head title={t('nav.overview')} about={<From of={loaded.data} />} />
      <Data of={loaded}>{d => <Content d={d} />}</Data>
    </>
  )
}

function Content({ d }: { d: Answer }) {
  return (
    <>
      <Notes of={d} partial={d.partial} />
      <Money d={d} />
      <div class="columns wide">
        <div class="stack">
          <Card title={t('overview.attention')}><Attention d={d} /></Card>
          <Top d={d} />
          <Card title={t('overview.trend')} note={[t('unit.perMonth'), d.trendSource && t('overview.keptIn', { where: d.trendSource })].filter(Boolean).join(' · ')}>
            <Missing d={d} part="trend" />
            {list(d.trend).length > 1 ? <Trend d={d} /> : !d.missing?.trend && <p class="muted">{t('overview.noTrend')}</p>}
          </Card>
        </div>
        <div class="stack">
          <Coverage d={d} />
          <Adopted d={d} />
          <Namespaces d={d} />
          <Kills d={d} />
        </div>
      </div>
      <Queries of={d} />
    </>
  )
}

function Money({ d }: { d: Answer }) {
  const { mode } = useSession()
  const { clusterPerMonth: all, requestedPerMonth, usedPerMonth, idlePerMonth, recoverablePerMonth, neededPerMonth } = d.money
  const share = (v: number | null | undefined) => known(v) && known(all) && all > 0 ? t('overview.ofCost', { share: percent(v / all) }) : ''
  const recovered = [share(recoverablePerMonth), milli(d.money.savedCPUMilli) + ' ' + t('unit.cores'), bytes(d.money.savedMemoryBytes)].filter(Boolean).join(' · ')
  return (
    <>
      <Figures>
        <Figure label={t('overview.recoverable')} value={money(recoverablePerMonth, d.currency)} unit={t('unit.perMonth')} lead note={recovered} />
        <Figure label={t('overview.cost')} value={money(all, d.currency)} unit={t('unit.perMonth')} note={known(all) ? t('overview.costNote') : mode === 'files' ? t('overview.noNodes') : d.missing?.cost?.right ? t('overview.needs', { right: d.missing.cost.right }) : d.missing?.cost?.message ?? ''} />
        <Figure label={t('overview.requested')} value={money(requestedPerMonth, d.currency)} unit={t('unit.perMonth')} note={share(requestedPerMonth)} />
        <Figure label={t('overview.used')} value={money(usedPerMonth, d.currency)} unit={t('unit.perMonth')} note={share(usedPerMonth)} />
        <Figure label={t('overview.idle')} value={money(idlePerMonth, d.currency)} unit={t('unit.perMonth')} note={share(idlePerMonth)} />
      </Figures>
      {d.costSource && <p class="provenance"><span>{t('overview.costFrom')}</span><span>{t('from.window', { window: duration(d.costWindowSeconds) })}</span><span>{t('from.source', { source: d.costSource })}</span></p>}
      {neededPerMonth > 0 && <p class="muted">{t('overview.needed', { cost: money(neededPerMonth, d.currency) })}</p>}
    </>
  )
}

function Trend({ d }: { d: Answer }) {
  const points = list(d.trend)
  const of = (get: (p: (typeof points)[number]) => number | null | undefined) => points.map(p => get(p) ?? null)
  const lines: Line[] = ([
    { id: 'cost', label: t('overview.cost'), tone: 'request', values: of(p => p.clusterPerMonth) },
    { id: 'used', label: t('overview.used'), tone: 'use', values: of(p => p.usedPerMonth) },
    { id: 'recoverable', label: t('overview.recoverable'), tone: 'accent', values: of(p => p.recoverablePerMonth) },
    { id: 'promised', label: t('overview.promised'), tone: 'forecast', values: of(p => p.promisedPerMonth), dashed: true },
    { id: 'realised', label: t('overview.realised'), tone: 'recommended', values: of(p => p.realisedPerMonth) },
  ] satisfies Line[]).filter(l => l.values.some(known))
  return <Chart label={t('overview.trend')} unit="money" times={points.map(p => p.at)} lines={lines} height={240} format={v => money(v, d.currency)} />
}

const tones: Record<string, string> = { error: 'bad', warning: 'warn', info: '' }

function Attention({ d }: { d: Answer }) {
  const findings = list(d.attention)
  if (findings.length === 0) return <p class="muted">{t('overview.noAttention')}</p>
  return (
    <ul class="attention">
      {findings.map(a => (
        <li key={a.reason + a.message + (a.target?.name ?? '')}>
          <Tag tone={tones[a.severity] ?? ''}>{tOr('severity.' + a.severity, a.severity)}</Tag>
          <div>
            <div>{a.target && <><Link to={workloadPath(a.target)}>{a.target.namespace}/{a.target.name}</Link> </>}{a.message}</div>
            {(a.next || !!a.at) && <div class="muted">{a.next} {!!a.at && <Time at={a.at} />}</div>}
          </div>
          {!a.target && a.page && <Link to={'/' + a.page}>{tOr('nav.' + a.page, t('overview.open'))}</Link>}
        </li>
      ))}
    </ul>
  )
}

function Top({ d }: { d: Answer }) {
  const rows = list(d.top)
  return (
    <Card title={t('overview.top')} actions={<Link to="/worklist">{t('overview.allRows')}</Link>}>
      {rows.length === 0 ? (d.coverage.workloads > 0 ? <p class="muted">{t('overview.noTop')}</p> : <Empty title={t('worklist.empty')}><p>{t('worklist.emptyHint')}</p></Empty>) : (
        <Scroll>
          <table class="table">
            <thead><tr><th scope="col">{t('worklist.workload')}</th><th scope="col">{t('worklist.change')}</th><th scope="col" class="number">{t('worklist.risk')}</th><th scope="col" class="number">{t('worklist.saving')}</th></tr></thead>
            <tbody>{rows.map(r => (
              <tr key={workloadPath(placeOf(r)) + r.type}>
                <th scope="row"><Link to={workloadPath(placeOf(r))}>{[r.namespace, r.workload].filter(Boolean).join('/')}</Link></th>
                <td>{r.change}</td>
                <td class="number"><Risk row={r} /></td>
                <td class="number"><strong>{money(r.savingPerMonth, d.currency)}</strong></td>
              </tr>
            ))}</tbody>
          </table>
        </Scroll>
      )}
    </Card>
  )
}

function Coverage({ d }: { d: Answer }) {
  const c = d.coverage
  if (c.workloads === 0) return null
  const part = (n: number) => n / c.workloads
  const line = (label: string, n: number, states: string, tone: string) => (
    <><dt><i class={'dot ' + tone} />{label}</dt><dd class="number">{states && n > 0 ? <Link to={'/worklist?type=Resource&state=' + states}>{count(n)}</Link> : count(n)} <span class="muted">{percent(part(n))}</span></dd></>
  )
  return (
    <Card title={t('overview.coverage')} note={t('overview.coverageNote', { n: count(c.workloads) })}>
      <Bar label={`${t('overview.withNumber')}: ${percent(part(c.withNumber))}`} parts={[{ share: part(c.withNumber), tone: 'good' }, { share: part(c.learning + c.noData) }, { share: part(c.refused + c.failed), tone: 'waste' }]} />
      <dl class="facts">
        {line(t('overview.withNumber'), c.withNumber, '', 'good')}
        {line(t('rec.learning'), c.learning, 'learning', '')}
        {line(t('rec.nodata'), c.noData, 'nodata', '')}
        {line(t('rec.refused'), c.refused, 'refused', 'waste')}
        {line(t('rec.failed'), c.failed, 'failed', 'waste')}
        {line(t('overview.adoptedWorkloads'), c.adopted, '', 'none')}
      </dl>
    </Card>
  )
}

function Adopted({ d }: { d: Answer }) {
  const a = d.adoption
  const share = known(a.promisedPerMonth) && known(a.realisedPerMonth) && a.promisedPerMonth > 0 ? a.realisedPerMonth / a.promisedPerMonth : null
  return (
    <Card title={t('overview.adopted')} note={[t('overview.adoptedNote'), d.trendSource && t('overview.keptIn', { where: d.trendSource })].filter(Boolean).join(' · ')}>
      {a.workloads === 0 ? <p class="muted">{t('overview.noneAdopted')}</p> : (
        <>
          {known(share) && <Bar label={t('overview.realised') + ' ' + percent(share)} parts={[{ share, tone: 'good' }]} />}
          <dl class="facts">
            <dt>{t('overview.promised')}</dt><dd class="number">{money(a.promisedPerMonth, d.currency)} {t('unit.perMonth')}</dd>
            <dt>{t('overview.realised')}</dt><dd class="number">{money(a.realisedPerMonth, d.currency)} {t('unit.perMonth')}</dd>
            {known(a.realised) && known(a.promised) && <><dt>{t('overview.saved')}<div class="muted"><Time at={a.since} /></div></dt><dd class="number">{money(a.realised, d.currency)}</dd><dt>{t('overview.savedOf')}</dt><dd class="number">{money(a.promised, d.currency)}</dd></>}
            <dt>{t('overview.adoptedWorkloads')}</dt><dd class="number">{count(a.workloads)}</dd>
            <dt>{t('overview.inProgress')}</dt><dd class="number">{count(a.inProgress)}</dd>
            <dt>{t('overview.rolledBack')}</dt><dd class="number">{count(a.rolledBack)}</dd>
          </dl>
        </>
      )}
    </Card>
  )
}

function Namespaces({ d }: { d: Answer }) {
  const rows = list(d.namespaces).filter(r => r.namespace || r.savingPerMonth !== 0).slice(0, 12)
  if (rows.length === 0) return null
  const most = Math.max(...rows.map(r => r.savingPerMonth), 0)
  return (
    <Card title={t('overview.namespaces')}>
      <Scroll>
        <table class="table">
          <thead><tr><th scope="col">{t('worklist.namespace')}</th><th scope="col" class="number">{t('overview.workloads')}</th><th scope="col" class="number">{t('worklist.savingShort')}</th></tr></thead>
          <tbody>{rows.map(r => (
            <tr key={r.cluster + r.namespace}>
              <th scope="row"><Link to={`/worklist?namespace=${encodeURIComponent(r.namespace)}`}>{r.namespace || t('overview.clusterScoped')}</Link>
                {most > 0 && <Bar label={money(r.savingPerMonth, d.currency)} parts={[{ share: r.savingPerMonth / most, tone: 'good' }]} />}</th>
              <td class="number">{count(r.workloads)}</td><td class="number">{money(r.savingPerMonth, d.currency)}</td>
            </tr>
          ))}</tbody>
        </table>
      </Scroll>
    </Card>
  )
}

function Kills({ d }: { d: Answer }) {
  if (!d.oomKills && !d.missing?.oomKills) return null
  return (
    <Card title={t('overview.oomKills')} note={[t('overview.sevenDays'), d.oomSource && t('overview.keptIn', { where: d.oomSource })].filter(Boolean).join(' · ')}>
      <Missing d={d} part="oomKills" />
      {d.oomKills && (d.oomKills.length === 0 ? <p class="muted">{t('overview.noKills')}</p> : (
        <ul class="attention">{d.oomKills.slice(0, 10).map(k => (
          <li key={k.at + k.target.name + k.container + (k.pod ?? '')}>
            <Time at={k.at} />
            <span><Link to={workloadPath(k.target)}>{k.target.namespace}/{k.target.name}</Link> <span class="muted">{k.container}</span></span>
            <span class="number">{bytes(k.memoryBytes)}</span>
          </li>
        ))}</ul>
      ))}
    </Card>
  )
}

/** Why a part of the page is absent, such as a right that the person lacks. */
function Missing({ d, part }: { d: Answer; part: 'trend' | 'oomKills' }) {
  const missing = d.missing?.[part]
  if (!missing) return null
  return <Failed failure={failureOf(missing)} />
}
