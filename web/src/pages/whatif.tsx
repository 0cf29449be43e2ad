import { useEffect, useId, useState } from 'preact/hooks'
import { list, paths, type Place, type WhatIf } from '../api'
import { t } from '../i18n'
import { count, known, money, percent, quantity } from '../lib/format'
import { useData, useSettled } from '../lib/use'
import { useCluster } from '../session'
import { From } from '../ui/origin'
import { Card, Figure, Figures } from '../ui/parts'
import { Failed, Loading } from '../ui/states'
import { OutcomeTable } from './derivation'

interface Settings { percentile?: number | undefined; margin?: number | undefined; target?: number | undefined }

/** Controls that replay the container's own history with another percentile, margin or target. */
export function WhatIfCard({ place, container, resource, currency }: { place: Place; container: string; resource: 'cpu' | 'memory'; currency: string }) {
  const [settings, set] = useState<Settings>({})
  const settled = useSettled(settings, 200)
  const cluster = useCluster(place.cluster)
  const loaded = useData<WhatIf>(cluster.address(paths.whatIf, { namespace: place.namespace, kind: place.kind, name: place.name, container, ...settled }))
  // Keeps the last result while the next one is computed, so that the figures do not flicker.
  const [last, setLast] = useState<WhatIf>()
  useEffect(() => { if (loaded.data) setLast(loaded.data) }, [loaded.data])
  const w = loaded.data ?? last
  const reset = Object.values(settings).some(known)
  return (
    <Card title={t('whatif.title')} note={t('whatif.note')} actions={reset && <button type="button" class="button small" onClick={() => set({})}>{t('whatif.reset')}</button>}>
      {!w ? (loaded.failure ? <Failed failure={loaded.failure} retry={loaded.reload} /> : <Loading />) : (
        <>
          <Controls w={w} resource={resource} settings={settings} onChange={set} />
          {loaded.failure && <p class="notice bad" role="alert">{loaded.failure.message}</p>}
          <Result w={w} resource={resource} currency={currency} busy={loaded.loading} changed={reset} />
          <p class="provenance"><From of={w} /></p>
        </>
      )}
    </Card>
  )
}

function Controls({ w, resource, settings, onChange }: { w: WhatIf; resource: 'cpu' | 'memory'; settings: Settings; onChange: (s: Settings) => void }) {
  const cpu = resource === 'cpu'
  const policy = { percentile: cpu ? w.policy.cpuPercentile : w.policy.memoryPercentile, margin: cpu ? w.policy.cpuMargin : w.policy.memoryMargin, target: cpu ? w.policy.target : undefined }
  return (
    <div class="form">
      <Slider label={t('whatif.percentile')} value={settings.percentile ?? policy.percentile ?? 0.95} policy={policy.percentile} min={0.5} max={1} step={0.005} show={v => 'p' + Math.round(v * 1000) / 10} onChange={v => onChange({ ...settings, percentile: v, target: undefined })} />
      <Slider label={t('whatif.margin')} value={settings.margin ?? policy.margin ?? 0.15} policy={policy.margin} min={0} max={1} step={0.01} show={v => '+' + percent(v)} onChange={v => onChange({ ...settings, margin: v })} />
      {cpu && <Slider label={t('whatif.target')} value={settings.target ?? policy.target ?? 0.005} policy={policy.target} min={0.0025} max={0.1} step={0.0025} show={v => t('whatif.targetValue', { share: percent(v, 2), minutes: count(Math.round(v * 14400) / 10) })} onChange={v => onChange({ target: v })} />}
    </div>
  )
}

function Slider({ label, value, policy, min, max, step, show, onChange }: {
  label: string; value: number; policy: number | null | undefined; min: number; max: number; step: number; show: (v: number) => string; onChange: (v: number) => void
}) {
  const id = useId()
  return (
    <div class="field">
      <label for={id} class="spread"><span>{label}</span><strong>{show(value)}</strong></label>
      <input id={id} type="range" min={min} max={max} step={step} value={value} aria-valuetext={show(value)} onInput={e => onChange(Number(e.currentTarget.value))} />
      <span class="hint muted">{known(policy) ? t('whatif.policyValue', { value: show(policy) }) : t('whatif.notUsed')}</span>
    </div>
  )
}

function Result({ w, resource, currency, busy, changed }: { w: WhatIf; resource: 'cpu' | 'memory'; currency: string; busy: boolean; changed: boolean }) {
  const r = w[resource]
  if (!r) return <p class="muted">{t('whatif.noResult')}</p>
  const outcomes = list(r.replay?.outcomes)
  const own = outcomes[0]
  return (
    <div class="stack" aria-busy={busy}>
      <Figures small>
        <Figure label={t('replay.request')} value={quantity(resource, r.requestRecommended)} lead note={known(r.requestNow) ? t('whatif.now', { value: quantity(resource, r.requestNow) }) : undefined} />
        <Figure label={t('replay.slack')} value={percent(own?.slack)} />
        <Figure label={t('replay.above')} value={count(own?.minutesAbovePerDay)} />
        <Figure label={changed ? t('whatif.delta') : t('worklist.saving')} value={money(changed ? r.savingPerMonthDelta : r.savingPerMonth, currency)} tone={changed && known(r.savingPerMonthDelta) ? (r.savingPerMonthDelta < 0 ? 'warn' : 'good') : ''} />
      </Figures>
      {outcomes.length > 1 && changed && <details><summary>{t('whatif.compare')}</summary><OutcomeTable outcomes={outcomes} resource={resource} currency={currency} highlight={own?.name ?? ''} /></details>}
    </div>
  )
}
