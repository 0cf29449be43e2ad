// Answers for tests, in the form of the contract. They are made up by a seeded generator; nothing of this is shipped.
export const now = Math.floor(Date.now() / 1000)

function random(seed) {
  let s = seed
  return () => { s = (s * 1664525 + 1013904223) % 4294967296; return s / 4294967296 }
}

const origin = (source, more = {}) => ({ asOf: now - 40, windowSeconds: 14 * 86400, source, ...more })
const namespaces = ['shop', 'search', 'payments', 'ml', 'ingest', 'web', 'platform', 'team-a', 'team-b', 'batch']
const names = ['api', 'web', 'worker', 'cache', 'gateway', 'indexer', 'scheduler', 'frontend', 'catalog', 'mailer']
const states = ['ready', 'ready', 'ready', 'ready', 'ready', 'ready', 'adopted', 'adopting', 'learning', 'refused', 'clear', 'failed', 'rolledback', 'paused', 'nodata', 'stopped']
const GiB = 2 ** 30

export function row(i, r) {
  const namespace = namespaces[i % namespaces.length]
  const state = states[Math.floor(r() * states.length)]
  const cpu = Math.ceil(r() * 40) * 100
  const memory = Math.ceil(r() * 32) * GiB / 4
  const known = !['learning', 'nodata', 'refused'].includes(state)
  const to = 0.15 + r() * 1.1
  const replicas = 1 + Math.floor(r() * 12)
  const recommended = { cpuMilli: Math.round(cpu * to), memoryBytes: Math.round(memory * (0.3 + r() * 0.9)) }
  return {
    cluster: 'prod', namespace, name: `${names[i % names.length]}-${i}-resource`, type: i % 37 === 0 ? 'Replicas' : 'Resource', rule: 'workloads',
    kind: i % 11 === 0 ? 'StatefulSet' : 'Deployment', workload: i === 1 ? 'web' : `${names[Math.floor(i / 10) % names.length]}-${i}`, apiVersion: 'apps/v1', labels: { team: namespaces[(i * 7) % 10], tier: i % 3 ? 'backend' : 'frontend' },
    state, reason: state === 'refused' ? 'AutoscalerNotOwned' : '', message: state === 'refused' ? 'a HorizontalPodAutoscaler acts on its CPU request' : '',
    change: `cpu ${cpu}m → ${recommended.cpuMilli}m`, action: 'Patch', now: { cpuMilli: cpu, memoryBytes: memory },
    ...(known ? { recommended, savingPerMonth: ((cpu - recommended.cpuMilli) / 1000 * 18 + (memory - recommended.memoryBytes) / GiB * 2.4) * replicas,
      savedCPUMilli: (cpu - recommended.cpuMilli) * replicas, savedMemoryBytes: (memory - recommended.memoryBytes) * replicas } : {}),
    risk: Math.floor(r() * r() * 100), riskReasons: ['one replica', 'history of 9 days'], adoptionType: ['adopted', 'adopting', 'rolledback', 'paused'].includes(state) ? 'Auto' : 'StatusAndAnnotation',
    created: now - 20 * 86400, updated: now - Math.floor(r() * 5 * 86400),
  }
}

export function worklist(n) {
  const r = random(7)
  const rows = Array.from({ length: n }, (_, i) => row(i, r)).sort((a, b) => (b.savingPerMonth ?? -1e9) - (a.savingPerMonth ?? -1e9))
  return { ...origin('Recommendations of the cluster prod'), currency: 'USD', rows, labelKeys: ['team', 'tier'], teamLabel: 'team' }
}

export const session = {
  authenticated: true, user: 'jane@example.com', mode: 'cluster', loginMethods: ['token'], csrfToken: 'csrf', expires: now + 3600, version: 'v1.2.0',
  pages: ['overview', 'worklist', 'workload', 'autoscaling', 'nodes', 'cost', 'rules', 'health'],
  clusters: [{ name: 'prod', currency: 'USD', craneInstalled: true, history: true, rights: { clusterTotals: true, nodes: true, adopt: true, rules: true, createRules: true } }],
}

export function overview() {
  const rows = worklist(200).rows
  return {
    ...origin('Recommendations and nodes of the cluster prod', { notes: ['The price book has default prices for 2 of 14 nodes.'], promql: { used: 'sum(rate(container_cpu_usage_seconds_total{container!=""}[1h]))' } }),
    currency: 'USD', costSource: 'Node prices, Prometheus http://prometheus:9090', costWindowSeconds: 3600,
    money: { clusterPerMonth: 48210, requestedPerMonth: 39100, usedPerMonth: 15340, idlePerMonth: 9110, recoverablePerMonth: 17480, neededPerMonth: 640, savedCPUMilli: 412300, savedMemoryBytes: 910 * GiB },
    coverage: { workloads: 412, withNumber: 351, learning: 31, noData: 8, refused: 19, failed: 3, adopted: 74 },
    namespaces: namespaces.map((namespace, i) => ({ cluster: 'prod', namespace, workloads: 12 + i * 3, savingPerMonth: 5200 / (i + 1) })), top: rows.slice(0, 8),
    attention: [
      { severity: 'error', reason: 'RolledBack', message: 'was rolled back: the restarts of its pods rose from 0 to 3 in 10 minutes.', next: 'Adoption is held until tomorrow 09:00.', target: { cluster: 'prod', namespace: 'shop', kind: 'Deployment', name: 'web' }, at: now - 7200 },
      { severity: 'warning', reason: 'OOMKilled', message: 'container app was killed for its memory 4 times; it requests 512 MiB and peaks at 790 MiB.', target: { cluster: 'prod', namespace: 'ml', kind: 'StatefulSet', name: 'trainer' }, at: now - 86400 },
      { severity: 'info', reason: 'RuleFailed', message: 'The rule nodes has not run since yesterday.', page: 'rules' },
    ],
    adoption: { workloads: 74, inProgress: 3, rolledBack: 1, promisedPerMonth: 6120, realisedPerMonth: 5790, promised: 9600, realised: 4800, since: now - 40 * 86400 },
    trend: Array.from({ length: 45 }, (_, i) => ({ at: now - (45 - i) * 86400, clusterPerMonth: 56000 - i * 160 + Math.sin(i) * 500, usedPerMonth: 15000 + Math.sin(i / 3) * 900, recoverablePerMonth: 26000 - i * 190, realisedPerMonth: i * 128 })),
    trendSource: 'ConfigMap crane-system/crane-savings', oomSource: 'ConfigMap crane-system/oom-record',
    oomKills: [{ target: { cluster: 'prod', namespace: 'ml', kind: 'StatefulSet', name: 'trainer' }, container: 'app', pod: 'trainer-0', at: now - 86400, memoryBytes: 790 * 2 ** 20 }],
  }
}

const outcome = (name, request, slack, above, cost) => ({ name, request, slack, minutesAbovePerDay: above, overrun: 0.002, throttledMinutesPerDay: above / 3, changesPerDay: 0.1, costPerMonth: cost })

function replay(scale) {
  return {
    from: '2026-11-11', to: '2026-11-24', days: 14,
    outcomes: [outcome('calibrated', 0.78 * scale, 0.31, 6.9, 310), outcome('today', 2 * scale, 0.74, 0, 790), outcome('vpa', 1.12 * scale, 0.52, 3.1, 442), outcome('krr-p95', 0.71 * scale, 0.27, 41, 281), outcome('gocrane', 0.9 * scale, 0.4, 14.2, 355)],
    curve: [0.9, 0.95, 0.99, 0.999].map((percentile, i) => ({ percentile, request: (0.6 + i * 0.1) * scale, slack: 0.2 + i * 0.05, minutesAbovePerDay: 140 / (1 + i * 8) })),
  }
}

function detail(unit, scale) {
  const u = unit === 'cores' ? 1 : GiB
  return {
    unit, status: 'Ready', message: '', requestNow: 2 * u, limitNow: 4 * u, requestRecommended: 0.78 * u * scale, limitRecommended: 1.6 * u, savingPerMonth: 480,
    usage: { samples: 161280, mean: 0.42 * u, p50: 0.38 * u, p95: 0.66 * u, p99: 0.75 * u, max: 1.1 * u }, confidence: 0.86, days: 14,
    steps: [
      { code: 'estimate', from: 0, to: 0.71 * u, detail: '', text: 'lowest-cost point of each of 14 days from p98 to its maximum, covering 85 % of the days' },
      { code: 'margin', from: 0.71 * u, to: 0.775 * u, detail: '', text: '9 % on top: the days differ by 11 %' },
      { code: 'rounding', from: 0.775 * u, to: 0.78 * u, detail: '', text: 'up to a multiple of 10m' },
    ],
    flags: [{ code: 'startup', detail: 'uses twice as much in its first 3 minutes' }],
    calibration: unit === 'cores' ? { target: 0.005, achieved: 0.0048, days: 14, message: 'target 7.2 minutes a day, replay 6.9' } : undefined, replay: replay(u),
  }
}

export function workload(namespace, name) {
  const r = row(1, random(3))
  return {
    ...origin('Prometheus http://prometheus:9090'), currency: 'USD', target: { cluster: 'prod', namespace, kind: 'Deployment', name }, replicas: 6, labels: { team: 'shop' },
    rows: [{ ...r, namespace, workload: name, state: 'ready', message: '', adoptionType: 'StatusAndAnnotation', now: { cpuMilli: 2000, memoryBytes: 4 * GiB }, recommended: { cpuMilli: 780, memoryBytes: 2 * GiB }, savingPerMonth: 742.5 },
      { ...r, namespace, workload: name, type: 'Replicas', name: name + '-replicas', change: 'replicas 6 → 4', savingPerMonth: 120 }],
    sources: [{ source: 'Template of the Deployment', cpu: '2', memory: '4Gi', replicas: '6', acts: true, why: 'no adoption yet' }, { source: 'Recommendation shop/web-resource', cpu: '780m', memory: '2Gi', acts: false, why: 'adoptionType is StatusAndAnnotation' }],
    containers: [{ name: 'app', role: 'app', cpu: detail('cores', 1), memory: detail('bytes', 2.56) }, { name: 'proxy', role: 'sidecar', cpu: detail('cores', 0.2), memory: detail('bytes', 0.2) }],
    policy: 'calibrated', policyReason: 'default of the cluster',
    patchYAML: 'spec:\n  template:\n    spec:\n      containers:\n      - name: app\n        resources:\n          requests:\n            cpu: 780m\n            memory: 2Gi\n', commands: { patch: `kubectl patch deployment ${name} -n ${namespace} --patch-file patch.yaml`, adopt: `crane adopt ${namespace}/${name}` },
    canAdopt: true, adoption: undefined,
  }
}

export function series(from, to, points) {
  const step = Math.max(60, Math.ceil((to - from) / points / 60) * 60)
  const t = []
  for (let at = from; at <= to; at += step) t.push(at)
  const r = random(11)
  const use = t.map((at, i) => (i > 200 && i < 206 ? null : 0.42 + 0.22 * Math.sin(at / 86400 * 2 * Math.PI) + r() * 0.12))
  const line = (kind, resource, v, more = {}) => ({ kind, container: 'app', resource, unit: resource === 'cpu' ? 'cores' : 'bytes', t, v, promql: `max by (pod) (rate(container_cpu_usage_seconds_total{namespace="shop",container="app"}[5m])) # ${kind}`, ...more })
  const future = Array.from({ length: 48 }, (_, i) => to + i * 1800)
  const f = future.map(at => 0.48 + 0.22 * Math.sin(at / 86400 * 2 * Math.PI))
  return {
    ...origin('Prometheus http://prometheus:9090'), from, to, stepSeconds: step, thinned: true,
    series: [
      line('usage', 'cpu', use), line('usageMean', 'cpu', use.map(v => v === null ? null : v * 0.8)), line('request', 'cpu', t.map(() => 2)), line('limit', 'cpu', t.map(() => 4)),
      { ...line('recommended', 'cpu', []), t: [from, to - 86400, to], v: [0.9, 0.78, 0.78] },
      { ...line('forecast', 'cpu', f), t: future }, { ...line('forecastLow', 'cpu', f.map(v => v - 0.1)), t: future }, { ...line('forecastHigh', 'cpu', f.map(v => v + 0.12)), t: future },
      line('usage', 'memory', use.map(v => v === null ? null : (1 + v) * GiB)), line('request', 'memory', t.map(() => 4 * GiB)), line('recommended', 'memory', t.map(() => 2 * GiB)),
    ],
    marks: [{ at: from + (to - from) * 0.3, kind: 'rollout', text: 'rollout of revision 7' }, { at: from + (to - from) * 0.6, kind: 'resize', text: 'cpu 2 to 1200m' }, { at: from + (to - from) * 0.8, kind: 'oom', text: 'app of web-1 was killed' }],
  }
}

export function whatIf(q) {
  const percentile = Number(q.get('percentile') ?? 0.98)
  const margin = Number(q.get('margin') ?? 0.09)
  const scale = 0.5 + percentile * percentile * 0.3 + margin * 0.5
  const settings = { cpuPercentile: percentile, memoryPercentile: percentile, cpuMargin: margin, memoryMargin: margin, target: Number(q.get('target') ?? 0.005) }
  const of = unit => ({ ...detail(unit, scale), savingPerMonthDelta: Math.round((0.833 - scale) * 4000) / 10 })
  return { ...origin('Prometheus http://prometheus:9090'), currency: 'USD', container: q.get('container'), settings, policy: { cpuPercentile: 0.98, memoryPercentile: 0.98, cpuMargin: 0.09, memoryMargin: 0.09, target: 0.005 }, cpu: of('cores'), memory: of('bytes') }
}

const target = { cluster: 'prod', namespace: 'shop', kind: 'Deployment', name: 'web' }
export const autoscaling = {
  ...origin('EffectiveHorizontalPodAutoscalers of the cluster prod'),
  horizontal: [{ cluster: 'prod', namespace: 'shop', name: 'web', target, strategy: 'Auto', minReplicas: 2, maxReplicas: 20, currentReplicas: 6, desiredReplicas: 8, withoutForecast: 6, lastScale: now - 600, winner: 'cpu forecast', why: 'the load of 10:30 needs 8 replicas',
    proposals: [{ name: 'cpu', kind: 'metric', replicas: 6, current: '62 %', target: '60 %' }, { name: 'cpu forecast', kind: 'forecast', replicas: 8, current: '4.1', target: '0.6' }],
    crons: [{ name: 'sale', active: false, start: '0 8 * * 5', end: '0 20 * * 5', timeZone: 'Europe/Berlin', replicas: 12, nextStart: now + 86400 }], conditions: [{ type: 'Ready', status: 'True' }], prediction: { algorithm: 'auto', windowSeconds: 3600 } }],
  vertical: [{ cluster: 'prod', namespace: 'shop', name: 'db', target: { ...target, kind: 'StatefulSet', name: 'db' }, updateMode: 'Auto', decisions: [{ container: 'db', resource: 'cpu', action: 'Lower', estimator: 'Percentile', current: '2', target: '1200m', message: 'below the threshold for 24h' }, { container: 'db', resource: 'memory', action: 'Hold', current: '8Gi', target: '7900Mi', message: 'the change is below 10 %' }], conditions: [{ type: 'Ready', status: 'True' }] }],
}

export function forecast() {
  const s = series(now - 2 * 86400, now, 300)
  return { ...origin('Prometheus http://prometheus:9090'), metrics: [{ name: 'cpu', algorithm: 'auto', ready: true, skill: 0.41, used: true, series: s.series.filter(x => x.resource === 'cpu' && ['usage', 'forecast', 'forecastLow', 'forecastHigh'].includes(x.kind)) }],
    replicas: ['replicas', 'replicasAlone', 'replicasForecast'].map((kind, i) => ({ kind, resource: 'replicas', unit: 'replicas', t: s.series[0].t, v: s.series[0].t.map((_, k) => 3 + i + k % 3) })),
    marks: [{ at: now - 3600, kind: 'cron', text: 'weekend starts' }] }
}

export function nodes() {
  const r = random(5)
  return {
    ...origin('Nodes of the cluster prod'), currency: 'USD', waterMarks: { cpu_usage_avg_5m: 0.65, mem_usage_avg_5m: 0.75 },
    nodes: Array.from({ length: 42 }, (_, i) => {
      const cpu = r() * 0.95
      return {
        name: `worker-${i}.eu-1.internal`, pool: i % 3 ? 'general' : 'memory', ready: i !== 13, unschedulable: i === 17, cpuMilli: 16000, memoryBytes: 64 * GiB, cpuRequestedMilli: Math.round(16000 * (0.4 + r() * 0.5)), memoryRequestedBytes: Math.round(64 * GiB * (0.3 + r() * 0.5)), pods: 12 + i, pricePerMonth: 280,
        loads: i === 13 ? undefined : { cpu_usage_avg_5m: cpu, cpu_usage_max_avg_1h: Math.min(1, cpu + 0.1), mem_usage_avg_5m: r() * 0.8 }, loadAt: now - 120, hotValue: 1.2, above: cpu > 0.65 ? ['cpu_usage_avg_5m'] : [], taints: [], conditions: [],
        zones: [{ name: 'node0', cpuMilli: 8000, cpuAllocatedMilli: 4000, pods: ['shop/db-0'] }, { name: 'node1', cpuMilli: 8000, cpuAllocatedMilli: 0 }], events: [{ at: now - 900, kind: 'throttled', text: 'batch/report-1: CPU of the node above 80 %' }],
      }
    }),
  }
}

export function cost(by) {
  return {
    ...origin('Pods and prices of the cluster prod', { promql: { usage: 'sum by (namespace) (rate(container_cpu_usage_seconds_total[1h]))' } }), currency: 'USD', by, withUsage: true, ...(by === 'label' ? { labelKeys: ['team', 'app.kubernetes.io/part-of'] } : {}), clusterPerMonth: 48210, idle: { requestPerMonth: 9110, usagePerMonth: 32870, maxPerMonth: 8800 },
    rows: namespaces.map((name, i) => ({ name, pods: 30 + i, requestPerMonth: 9000 / (i + 1), usagePerMonth: 3400 / (i + 1), maxPerMonth: 9300 / (i + 1) })),
  }
}

export const rules = {
  ...origin('RecommendationRules of the cluster prod'), recommenders: ['Resource', 'Replicas', 'HPA', 'IdleNode', 'Volume', 'Service', 'Unused', 'Packing', 'Throttle', 'GPU'],
  rules: [{ name: 'workloads', recommenders: ['Resource', 'Replicas'], interval: '24h', kinds: ['Deployment', 'StatefulSet'], targets: 412, runNumber: 12, lastRun: now - 3600, conditions: [{ type: 'Ready', status: 'True' }], yaml: 'apiVersion: analysis.crane.io/v1alpha1\nkind: RecommendationRule\n' }],
}

export const health = {
  ...origin('the cluster prod'),
  checks: [{ name: 'craned', status: 'ok', detail: '2 of 2 replicas are ready, v1.2.0' }, { name: 'metric-adapter', status: 'warn', detail: 'v1beta1.external.metrics.k8s.io is not available', next: 'kubectl -n crane-system logs deploy/metric-adapter' }, { name: 'crane-agent', status: 'off', detail: 'no DaemonSet crane-agent' }],
  server: [{ name: 'cache', status: 'ok', detail: '412 Recommendations, synced 4 s ago' }],
}

export const placement = q => ({
  ...origin('crane-scheduler'), windowSeconds: 0, pod: q.get('namespace') + '/' + q.get('pod'),
  attempts: [{ at: now - 300, profile: 'crane-scheduler', strategy: 'Spread', outcome: 'placed on worker-1', node: 'worker-1', cpuMilli: 500, memoryBytes: GiB, basis: "workload's Recommendation", freshNodes: 3, staleNodes: 0, absentNodes: 1, otherNodes: 2, nodeCount: 250,
    nodes: [{ name: 'worker-1', verdict: 'Scored', score: 100, reason: 'load 20.0% + on its way 0.0% + this pod 5.0%' }, { name: 'worker-2', verdict: 'Closed', reason: 'cpu_usage_avg_5m: load 70.0% + on its way 0.0% + this pod 5.0% is above the water mark of 65.0%' }] }],
})
