import { list, type Outcome, type Replay, type ResourceDetail, type WorkloadDetail } from '../api'
import { t, tOr } from '../i18n'
import { change, count, known, money, percent, quantity } from '../lib/format'
import { Card, Tag } from '../ui/parts'
import { Scroll } from '../ui/scroll'

/** The steps from the usage to the number, and the evidence behind them. */
export function Derivation({ d, detail, resource }: { d: WorkloadDetail; detail: ResourceDetail; resource: string }) {
  const amount = (v: number | null | undefined) => quantity(resource, v)
  const u = detail.usage
  return (
    <Card title={t('workload.derivation')} note={[d.policy && t('workload.policy', { policy: d.policy }), d.policyReason].filter(Boolean).join(': ')}>
      <dl class="facts">
        <dt>{t('workload.requestNow')}</dt><dd><Pair now={detail.requestNow} to={detail.requestRecommended} amount={amount} /></dd>
        <dt>{t('workload.limitNow')}</dt><dd>{known(detail.limitNow) || known(detail.limitRecommended) ? <Pair now={detail.limitNow} to={detail.limitRecommended} amount={amount} /> : t('workload.notSet')}</dd>
        <dt>{t('worklist.saving')}</dt><dd>{money(detail.savingPerMonth, d.currency)}</dd>
        <dt>{t('workload.evidence')}</dt><dd>{t('workload.evidenceText', { days: count(Math.round(detail.days * 10) / 10), samples: count(u.samples), confidence: percent(detail.confidence) })}</dd>
        <dt>{t('workload.usage')}</dt><dd>{t('workload.usageText', { mean: amount(u.mean), p50: amount(u.p50), p95: amount(u.p95), p99: amount(u.p99), max: amount(u.max) })}</dd>
        {detail.calibration && <><dt>{t('workload.target')}</dt><dd>{detail.calibration.message || t('workload.targetText', { target: percent(detail.calibration.target, 2), achieved: percent(detail.calibration.achieved, 2) })}</dd></>}
      </dl>
      {list(detail.flags).map(f => <p key={f.code}><Tag tone="warn">{f.code}</Tag> {f.detail}</p>)}
      <ol class="steps">
        {list(detail.steps).map((s, i) => (
          <li key={i}><span>{s.code}</span><span class="result">{amount(s.to)}</span><span class="why">{s.detail || s.text}</span></li>
        ))}
      </ol>
    </Card>
  )
}

function Pair({ now, to, amount }: { now: number | null | undefined; to: number | null | undefined; amount: (v: number | null | undefined) => string }) {
  return <>{known(now) ? amount(now) : t('workload.notSet')}<span class="arrow">→</span><strong>{amount(to)}</strong> <span class="muted">{known(now) && known(to) ? change(now, to) : ''}</span></>
}

/** Ways of sizing on the same past days, side by side. */
export function OutcomeTable({ outcomes, resource, currency, highlight = '' }: { outcomes: readonly Outcome[]; resource: string; currency: string; highlight?: string }) {
  const memory = resource === 'memory'
  return (
    <Scroll>
      <table class="table">
        <thead><tr>
          <th scope="col">{t('replay.way')}</th><th scope="col" class="number">{t('replay.request')}</th><th scope="col" class="number">{t('replay.slack')}</th>
          <th scope="col" class="number">{t('replay.above')}</th><th scope="col" class="number">{memory ? t('replay.oomDays') : t('replay.throttled')}</th>
          <th scope="col" class="number">{t('replay.changes')}</th><th scope="col" class="number">{t('replay.cost')}</th>
        </tr></thead>
        <tbody>{outcomes.map(o => (
          <tr key={o.name}>
            <th scope="row">{tOr('replay.name.' + o.name, o.name)} {o.name === highlight && <Tag tone="accent">{t('replay.policy')}</Tag>}</th>
            <td class="number">{quantity(resource, o.request)}</td>
            <td class="number">{percent(o.slack)}</td>
            <td class="number">{count(o.minutesAbovePerDay)}</td>
            <td class="number">{count(memory ? o.oomDays : o.throttledMinutesPerDay)}</td>
            <td class="number">{count(o.changesPerDay)}</td>
            <td class="number">{money(o.costPerMonth, currency)}</td>
          </tr>
        ))}</tbody>
      </table>
    </Scroll>
  )
}

export function ReplayTable({ replay, resource, currency }: { replay: Replay; resource: string; currency: string }) {
  const outcomes = list(replay.outcomes)
  const curve = list(replay.curve)
  return (
    <Card title={t('replay.title')} note={t('replay.note', { days: count(replay.days), from: replay.from, to: replay.to })}>
      <OutcomeTable outcomes={outcomes} resource={resource} currency={currency} highlight={outcomes[0]?.name ?? ''} />
      {curve.length > 0 && (
        <details>
          <summary>{t('replay.curve')}</summary>
          <Scroll><table class="table">
            <thead><tr><th scope="col" class="number">{t('replay.percentile')}</th><th scope="col" class="number">{t('replay.request')}</th><th scope="col" class="number">{t('replay.slack')}</th><th scope="col" class="number">{t('replay.above')}</th></tr></thead>
            <tbody>{curve.map(p => <tr key={p.percentile}><th scope="row" class="number">p{Math.round(p.percentile * 1000) / 10}</th><td class="number">{quantity(resource, p.request)}</td><td class="number">{percent(p.slack)}</td><td class="number">{count(p.minutesAbovePerDay)}</td></tr>)}</tbody>
          </table></Scroll>
        </details>
      )}
    </Card>
  )
}
