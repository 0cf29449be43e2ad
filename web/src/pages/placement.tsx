// Why a pod was placed where it is: how the scheduler filtered and scored the nodes in its latest attempts.
import { useState } from 'preact/hooks'
import { list, paths, type Placement, type PlacementAttempt } from '../api'
import { t, tOr } from '../i18n'
import { bytes, count, milli } from '../lib/format'
import { setQuery } from '../lib/router'
import { shellWord } from '../lib/shell'
import { useData } from '../lib/use'
import { useCluster } from '../session'
import { From } from '../ui/origin'
import { Card, Code, Tag, TextField, Time } from '../ui/parts'
import { Data } from '../ui/states'
import { Scroll } from '../ui/scroll'

export function PlacementCard({ pod }: { pod: string }) {
  const [text, setText] = useState(pod)
  const cluster = useCluster()
  const [namespace = '', name = ''] = pod.split('/')
  const loaded = useData<Placement>(namespace && name ? cluster.address(paths.placement, { namespace, pod: name }) : null)
  const valid = /^[^/\s]+\/[^/\s]+$/.test(text.trim())
  return (
    <Card title={t('placement.title')} note={t('placement.note')}>
      <form class="filters" onSubmit={e => { e.preventDefault(); if (valid) setQuery({ pod: text.trim() }, false) }}>
        <TextField label={t('placement.pod')} value={text} onInput={setText} placeholder="shop/web-6d4cf56db6-bbbbb" />
        <button type="submit" class="button" disabled={!valid}>{t('placement.explain')}</button>
      </form>
      {namespace && name && (
        <>
          <Data of={loaded}>{d => <>{list(d.attempts).map(a => <Attempt key={a.at + a.profile} a={a} />)}<p class="provenance"><From of={d} /></p></>}</Data>
          <Code text={`crane explain scheduling ${namespace.startsWith('-') ? '-- ' : ''}${shellWord(namespace + '/' + name)}`} label={t('placement.title')} />
        </>
      )}
    </Card>
  )
}

const tones: Record<string, string> = { Scored: 'good', Closed: 'bad' }

function Attempt({ a }: { a: PlacementAttempt }) {
  const nodes = list(a.nodes)
  return (
    <div class="stack">
      <p><strong>{a.outcome}</strong> <Time at={a.at} /> <span class="muted">{t('placement.by', { profile: a.profile, strategy: a.strategy })}</span></p>
      <p class="muted">{t('placement.expected', { cpu: milli(a.cpuMilli), memory: bytes(a.memoryBytes), basis: a.basis })} {t('placement.nodes', { fresh: count(a.freshNodes), stale: count(a.staleNodes), absent: count(a.absentNodes), other: count(a.otherNodes) })}</p>
      <Scroll>
        <table class="table">
          <thead><tr><th scope="col">{t('nodes.node')}</th><th scope="col">{t('placement.verdict')}</th><th scope="col" class="number">{t('placement.score')}</th><th scope="col">{t('workload.why')}</th></tr></thead>
          <tbody>{nodes.map(n => (
            <tr key={n.name}><th scope="row">{n.name} {n.name === a.node && <Tag tone="accent">{t('placement.chosen')}</Tag>}</th><td><Tag tone={tones[n.verdict] ?? ''}>{tOr('placement.' + n.verdict, n.verdict)}</Tag></td><td class="number">{count(n.score)}</td><td>{n.reason}</td></tr>
          ))}</tbody>
        </table>
      </Scroll>
      {a.nodeCount > nodes.length && <p class="muted">{t('placement.more', { n: count(a.nodeCount - nodes.length) })}</p>}
    </div>
  )
}
