// The form of a new RecommendationRule as YAML.

export interface RuleForm { name: string; interval: string; namespaces: string; kinds: string[]; labels: string; recommenders: string[] }

export const emptyRule: RuleForm = { name: '', interval: '24h', namespaces: '', kinds: ['Deployment', 'StatefulSet'], labels: '', recommenders: ['Resource'] }

/** The kinds of the form with the versions that serve them; cluster-scoped ones need all namespaces. */
export const ruleKinds: Record<string, string> = {
  Deployment: 'apps/v1', StatefulSet: 'apps/v1', DaemonSet: 'apps/v1', CronJob: 'batch/v1', Service: 'v1', Node: 'v1', PersistentVolume: 'v1',
}

/** A scalar as YAML: plain where that is unambiguous, else in double quotes, which YAML reads as JSON does. */
export function scalar(v: string): string {
  return /^[A-Za-z][\w./-]*$/.test(v) && !/^(true|false|yes|no|on|off|null|y|n)$/i.test(v) ? v : JSON.stringify(v)
}

export function words(text: string): string[] {
  return text.split(/[\s,]+/).filter(Boolean)
}

export function ruleYAML(f: RuleForm): string {
  const namespaces = words(f.namespaces)
  const labels = words(f.labels).map(l => { const at = l.indexOf('='); return at < 0 ? [l, ''] as const : [l.slice(0, at), l.slice(at + 1)] as const })
  const lines = [
    'apiVersion: analysis.crane.io/v1alpha1', 'kind: RecommendationRule', 'metadata:', '  name: ' + scalar(f.name.trim()), 'spec:',
    ...(f.interval.trim() ? ['  runInterval: ' + scalar(f.interval.trim())] : []),
    '  namespaceSelector:',
    ...(namespaces.length === 0 ? ['    any: true'] : ['    matchNames:', ...namespaces.map(n => '    - ' + scalar(n))]),
    f.kinds.length === 0 ? '  resourceSelectors: []' : '  resourceSelectors:',
  ]
  for (const kind of f.kinds) {
    lines.push('  - kind: ' + scalar(kind), '    apiVersion: ' + scalar(ruleKinds[kind] ?? ''))
    if (labels.length > 0) lines.push('    labelSelector:', '      matchLabels:', ...labels.map(([k, v]) => `        ${scalar(k)}: ${scalar(v)}`))
  }
  lines.push(f.recommenders.length === 0 ? '  recommenders: []' : '  recommenders:', ...f.recommenders.map(r => '  - name: ' + scalar(r)))
  return lines.join('\n') + '\n'
}
