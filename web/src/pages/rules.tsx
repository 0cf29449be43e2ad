import { useState } from 'preact/hooks'
import { list, paths, placeOf, workloadPath, type Rule, type RuleList, type RuleResult } from '../api'
import { t } from '../i18n'
import { count, money } from '../lib/format'
import { Failure, request } from '../lib/http'
import { setQuery } from '../lib/router'
import { emptyRule, ruleKinds, ruleYAML, type RuleForm } from '../lib/rule'
import { useData } from '../lib/use'
import { useCluster } from '../session'
import { CheckGroup } from '../ui/checks'
import { From, Notes } from '../ui/origin'
import { Card, Code, Head, Link, Tag, TextField, Time } from '../ui/parts'
import { Data, Empty, Failed, Loading } from '../ui/states'
import { toast } from '../ui/toast'
import { StateTag } from './worklist'
import type { PageProps } from '.'
import { Scroll } from '../ui/scroll'

export function Rules({ query }: PageProps) {
  const cluster = useCluster()
  const loaded = useData<RuleList>(cluster.address(paths.rules), 30_000)
  const creating = query.get('new') === '1'
  const mayCreate = cluster.cluster?.rights.createRules ?? false
  return (
    <>
      <Head title={t('nav.rules')} about={<From of={loaded.data} />}>
        {mayCreate && !creating && <button type="button" class="button primary" onClick={() => setQuery({ new: '1' }, false)}>{t('rules.create')}</button>}
      </Head>
      <Data of={loaded}>{d => (
        <>
          <Notes of={d} />
          {creating && <Editor recommenders={list(d.recommenders)} onDone={() => { setQuery({ new: '' }, false); loaded.reload() }} />}
          <Table rules={list(d.rules)} />
        </>
      )}</Data>
    </>
  )
}

function Table({ rules }: { rules: readonly Rule[] }) {
  if (rules.length === 0) return <div class="card"><Empty title={t('rules.empty')}><p>{t('rules.emptyHint')}</p></Empty></div>
  return (
    <Card title={t('rules.list')}>
      <Scroll>
        <table class="table">
          <thead><tr><th scope="col">{t('rules.name')}</th><th scope="col">{t('rules.recommenders')}</th><th scope="col">{t('rules.selects')}</th><th scope="col">{t('rules.interval')}</th><th scope="col" class="number">{t('rules.targets')}</th><th scope="col">{t('rules.lastRun')}</th><th scope="col">{t('worklist.state')}</th></tr></thead>
          <tbody>{rules.map(r => (
            <tr key={r.name}>
              <th scope="row">{r.name}<details><summary>YAML</summary><Code text={r.yaml} label={r.name} /></details></th>
              <td>{list(r.recommenders).join(', ')}</td>
              <td>{list(r.kinds).join(', ')}<div class="muted">{list(r.namespaces).length === 0 ? t('rules.allNamespaces') : list(r.namespaces).join(', ')}</div></td>
              <td>{r.interval || t('rules.once')}</td><td class="number">{count(r.targets)}</td>
              <td>{r.lastRun ? <Time at={r.lastRun} /> : '–'}<div class="muted">{t('rules.run', { n: r.runNumber })}</div></td>
              <td>{list(r.conditions).map(c => <Tag key={c.type} tone={c.status === 'True' ? 'good' : 'warn'} title={c.message}>{c.status === 'True' ? c.type : c.reason || c.type}</Tag>)}</td>
            </tr>
          ))}</tbody>
        </table>
      </Scroll>
    </Card>
  )
}

function Editor({ recommenders, onDone }: { recommenders: readonly string[]; onDone: () => void }) {
  const [form, setForm] = useState<RuleForm>(emptyRule)
  const [edited, setEdited] = useState<string | null>(null)
  const [result, setResult] = useState<RuleResult>()
  const [failure, setFailure] = useState<Failure>()
  const [busy, setBusy] = useState(false)
  const cluster = useCluster()
  const yaml = edited ?? ruleYAML(form)
  const change = (f: Partial<RuleForm>) => { setForm({ ...form, ...f }); setResult(undefined) }
  const post = (dryRun: boolean) => {
    setBusy(true)
    setFailure(undefined)
    request<RuleResult>(cluster.address(paths.rules), { method: 'POST', body: { yaml, dryRun } }).then(r => {
      setBusy(false)
      if (r.created) { toast(t('rules.created', { name: r.name })); onDone() } else setResult(r)
    }, (e: unknown) => { setBusy(false); setResult(undefined); setFailure(e instanceof Failure ? e : new Failure('failed', String(e))) })
  }
  return (
    <Card title={t('rules.create')} actions={<button type="button" class="button small plain" onClick={onDone}>{t('action.cancel')}</button>}>
      <div class="columns two">
        <div class="stack">
          {edited !== null && <p class="notice"><span>{t('rules.edited')}</span><button type="button" class="button small" onClick={() => setEdited(null)}>{t('rules.useForm')}</button></p>}
          <fieldset class="form" disabled={edited !== null}>
            <legend class="hidden">{t('rules.create')}</legend>
            <TextField label={t('rules.name')} value={form.name} onInput={name => change({ name })} />
            <TextField label={t('rules.interval')} value={form.interval} onInput={interval => change({ interval })} hint={t('rules.intervalHint')} />
            <TextField label={t('rules.namespaces')} value={form.namespaces} onInput={namespaces => change({ namespaces })} hint={t('rules.namespacesHint')} />
            <TextField label={t('rules.labels')} value={form.labels} onInput={labels => change({ labels })} hint={t('rules.labelsHint')} />
            <CheckGroup label={t('rules.kinds')} options={Object.keys(ruleKinds)} chosen={form.kinds} onChange={kinds => change({ kinds })} />
            <CheckGroup label={t('rules.recommenders')} options={recommenders.length > 0 ? recommenders : emptyRule.recommenders} chosen={form.recommenders} onChange={r => change({ recommenders: r })} />
          </fieldset>
        </div>
        <div class="field">
          <label for="rule-yaml">YAML</label>
          <textarea id="rule-yaml" rows={18} spellcheck={false} value={yaml} onInput={e => { setEdited(e.currentTarget.value); setResult(undefined) }} />
        </div>
      </div>
      {failure && <Failed failure={failure} />}
      {busy && <Loading label={t('rules.dryRunning')} />}
      {result && <Result r={result} />}
      <div class="row end">
        <button type="button" class="button" disabled={busy} onClick={() => post(true)}>{t('rules.dryRun')}</button>
        <button type="button" class="button primary" disabled={busy || !result} title={result ? '' : t('rules.dryRunFirst')} onClick={() => post(false)}>{t('rules.create')}</button>
      </div>
    </Card>
  )
}

function Result({ r }: { r: RuleResult }) {
  const rows = list(r.rows)
  const targets = list(r.targets)
  return (
    <div class="stack" role="status">
      <p><strong>{t('rules.selected', { n: count(r.selected) })}</strong> {t('act.nothingWritten')}</p>
      {list(r.warnings).map(w => <p class="notice warn" key={w}>{w}</p>)}
      {rows.length > 0 ? (
        <Scroll><table class="table">
          <thead><tr><th scope="col">{t('worklist.workload')}</th><th scope="col">{t('worklist.type')}</th><th scope="col">{t('worklist.change')}</th><th scope="col">{t('worklist.state')}</th><th scope="col" class="number">{t('worklist.saving')}</th></tr></thead>
          <tbody>{rows.map(x => <tr key={workloadPath(placeOf(x)) + x.type}><th scope="row"><Link to={workloadPath(placeOf(x))}>{[x.namespace, x.workload].filter(Boolean).join('/')}</Link></th><td>{x.type}</td><td>{x.change || x.message}</td><td><StateTag row={x} /></td><td class="number">{money(x.savingPerMonth, '')}</td></tr>)}</tbody>
        </table></Scroll>
      ) : targets.length > 0 && <p>{targets.slice(0, 50).map(x => [x.namespace, `${x.kind}/${x.name}`].filter(Boolean).join('/')).join(', ')}{targets.length > 50 && ' …'}</p>}
    </div>
  )
}
