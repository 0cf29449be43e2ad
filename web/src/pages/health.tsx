import { list, paths, type Check, type Health as Answer } from '../api'
import { t } from '../i18n'
import { useData } from '../lib/use'
import { useCluster } from '../session'
import { From, Notes } from '../ui/origin'
import { Card, Head, Tag } from '../ui/parts'
import { Data } from '../ui/states'
import { Scroll } from '../ui/scroll'

export function Health() {
  const cluster = useCluster()
  const loaded = useData<Answer>(cluster.address(paths.health), 30_000)
  return (
    <>
      <Head title={t('nav.health')} about={<From of={loaded.data} />} />
      <Data of={loaded}>{d => <Content d={d} />}</Data>
    </>
  )
}

function Content({ d }: { d: Answer }) {
  const warnings = [...list(d.checks), ...list(d.server)].filter(c => c.status === 'warn')
  return (
    <>
      <Notes of={d} />
      <p class={warnings.length > 0 ? 'notice warn' : 'notice good'} role="status">{warnings.length > 0 ? t('health.warnings', { n: warnings.length, names: warnings.map(w => w.name).join(', ') }) : t('health.good')}</p>
      <Card title={t('health.crane')} note={t('health.craneNote')}><Checks of={list(d.checks)} /></Card>
      <Card title={t('health.server')}><Checks of={list(d.server)} /></Card>
    </>
  )
}

function Checks({ of }: { of: readonly Check[] }) {
  if (of.length === 0) return <p class="muted">{t('health.none')}</p>
  return (
    <Scroll>
      <table class="table">
        <thead><tr><th scope="col">{t('health.check')}</th><th scope="col">{t('worklist.state')}</th><th scope="col">{t('health.detail')}</th></tr></thead>
        <tbody>{of.map(c => (
          <tr key={c.name + c.detail}>
            <th scope="row">{c.name}</th>
            <td><Tag tone={c.status === 'ok' ? 'good' : c.status === 'warn' ? 'warn' : ''}>{c.status === 'ok' ? t('health.ok') : c.status === 'warn' ? t('severity.warning') : t('health.off')}</Tag></td>
            <td>{c.detail}{c.next && <div class="muted">{c.next}</div>}</td>
          </tr>
        ))}</tbody>
      </table>
    </Scroll>
  )
}
