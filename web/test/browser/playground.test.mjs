// What an engineer does every week, against a real API server, Prometheus and craned: find the largest saving, understand it, export it, adopt it,
// watch the pods being resized, roll back. Needs CRANE_BIN, the folder of crane and of the playground's binaries.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:https'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { launch, openPage, screenshot, violations } from './browser.mjs'

const bin = process.env.CRANE_BIN ?? ''
const missing = ['crane', 'playground', 'controlplane', 'craned'].filter(name => !existsSync(join(bin, name)))
const skip = bin && missing.length === 0 && spawnSync(join(bin, 'crane'), ['dashboard', '--help']).status === 0 ? false : `CRANE_BIN does not name a folder with ${missing.join(', ') || 'a crane that has the command dashboard'}`
const minutes = 60_000

let browser, playground, link, server, folder
before(async () => {
  if (skip) return
  folder = mkdtempSync(join(tmpdir(), 'crane-playground-'))
  const arguments_ = ['--data-dir', folder, '--workloads', '10', '--nodes', '4', '--days', '8', '--only', 'apiserver,controller-manager,scheduler,prometheus,craned,dashboard']
  // The addresses are printed after the recommendations.
  playground = await start('playground', arguments_, /^ +dashboard +http:\S+ /m, 5 * minutes)
  link = playground.match.trim().split(/ +/)[1]
  browser = await launch()
}, { timeout: 6 * minutes })
after(async () => {
  await browser?.close()
  for (const one of [server, playground]) {
    if (!one) continue
    const ended = new Promise(resolve => one.process.once('exit', resolve))
    one.process.kill('SIGTERM')
    await ended
  }
  if (folder) rmSync(folder, { recursive: true, force: true })
})

function kubeconfig() { return join(folder, 'controlplane', 'kubeconfigs', 'admin.kubeconfig') }

/** Starts a binary and waits for a text in its output. */
function start(name, args, ready, timeout) {
  const process = spawn(join(bin, name), args, { stdio: ['ignore', 'pipe', 'pipe'] })
  let text = ''
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => { process.kill('SIGKILL'); reject(new Error(`${name} was not ready in time: ${text}`)) }, timeout)
    const read = chunk => {
      text += chunk
      if (ready.test(text)) { clearTimeout(timer); resolve({ process, text: () => text, match: text.match(ready)[0] }) }
    }
    process.stdout.on('data', read)
    process.stderr.on('data', read)
    process.on('exit', code => { clearTimeout(timer); reject(new Error(`${name} ended with ${code}: ${text}`)) })
  })
}

/** Sends a request to the API server with the certificate of the kubeconfig. */
async function call(method, path, body) {
  const text = readFileSync(kubeconfig(), 'utf8')
  const data = key => Buffer.from(text.match(new RegExp(key + '-data: (\\S+)'))?.[1] ?? '', 'base64')
  const token = text.match(/token: (\S+)/)?.[1]
  return new Promise((resolve, reject) => {
    const options = { method, ca: data('certificate-authority'), ...(token ? { headers: { Authorization: 'Bearer ' + token, 'Content-Type': 'application/json' } } : { cert: data('client-certificate'), key: data('client-key'), headers: { 'Content-Type': 'application/json' } }) }
    request(text.match(/server: (\S+)/)[1] + path, options, response => {
      const chunks = []
      response.on('data', c => chunks.push(c)).on('end', () => resolve(JSON.parse(Buffer.concat(chunks).toString())))
    }).on('error', reject).end(body && JSON.stringify(body))
  })
}
const get = path => call('GET', path)

const requests = async (namespace, name) => {
  const pods = await get(`/api/v1/namespaces/${namespace}/pods`)
  return pods.items.filter(p => p.metadata.name.startsWith(name + '-')).flatMap(p => p.spec.containers.map(c => JSON.stringify(c.resources.requests ?? {}))).sort().join()
}

async function until(what, condition, timeout) {
  for (const end = Date.now() + timeout; Date.now() < end; await new Promise(resolve => setTimeout(resolve, 1000))) {
    if (await condition()) return
  }
  assert.fail(`${what} did not happen within ${timeout / 1000} s`)
}

test('from the largest saving to resized pods and back', { skip, timeout: 10 * minutes }, async () => {
  const origin = new URL(link).origin
  const { page, problems } = await openPage(browser, origin)
  page.setDefaultTimeout(minutes)
  await page.goto(link)
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
  for (const name of ['overview', 'worklist', 'nodes', 'cost', 'rules', 'health', 'autoscaling']) {
    await page.goto(`${origin}/${name}`)
    await loaded(page)
    // A page whose data the server is still reading repeats its request.
    if (name !== 'autoscaling') await until(`${name} shows data instead of a state`, async () => await page.locator('.state').count() === 0, minutes)
    await checkPage(page, name)
  }

  await page.goto(origin + '/worklist?state=ready')
  const first = page.locator('[data-index="0"]')
  await first.waitFor()
  const [, namespace, kind] = (await first.locator('small').textContent()).split(' · ')
  const name = await first.getByRole('link').textContent()
  await first.locator('input').click()
  await page.getByRole('button', { name: 'Export' }).click()
  await page.getByRole('dialog').locator('pre').filter({ hasText: name }).waitFor()
  await page.keyboard.press('Escape')

  await first.getByRole('link').click()
  await page.locator('.chart canvas').waitFor()
  await page.locator('.steps li').first().waitFor()
  await page.getByRole('row', { name: /VPA/ }).waitFor()
  await page.getByRole('row', { name: /KRR/ }).first().waitFor()
  await page.getByLabel('Margin').fill('0.4')
  await page.getByText('Saving beside the policy').waitFor()
  await checkPage(page, 'workload')

  const before = await requests(namespace, name)
  assert.notEqual(before, '', `${kind} ${namespace}/${name} has no pods`)
  await page.getByRole('button', { name: 'Adopt', exact: true }).click()
  await page.getByRole('dialog').getByText('1 of 1 would be accepted').waitFor()
  assert.equal(await requests(namespace, name), before, 'a dry run changed pods')
  await screenshot(page, 'playground-adopt')
  await page.getByRole('dialog').getByRole('button', { name: 'Adopt (1)' }).click()
  await page.getByText('Adopt: 1 of 1 done.').waitFor()
  await until('a resize of the pods', async () => await requests(namespace, name) !== before, 3 * minutes)
  await page.getByRole('button', { name: 'Roll back' }).waitFor()
  await screenshot(page, 'playground-adopted')

  await page.getByRole('button', { name: 'Roll back' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Roll back (1)' }).click()
  await page.getByText('Roll back: 1 of 1 done.').waitFor()
  await until('the return of the old requests', async () => await requests(namespace, name) === before, 3 * minutes)
  assert.deepEqual(problems, [])
})

/** Waits until a page shows data or a state. */
async function loaded(page) {
  await page.locator('main h1').first().waitFor()
  await page.waitForFunction(() => !document.querySelector('.loading'))
}

/** Checks a page that shows data: axe, the widths of a telephone, a laptop and a 4K screen, and that each chart has its numbers and says where they are from. */
async function checkPage(page, name) {
  assert.deepEqual(await violations(page), [], name)
  for (const width of [400, 1280, 3840]) {
    await page.setViewportSize({ width, height: 900 })
    await page.waitForFunction(() => document.documentElement.scrollWidth <= window.innerWidth, null, { timeout: 5000 }).catch(() => assert.fail(`${name} is wider than ${width} px`))
    await screenshot(page, `playground-${name}-${width}`)
  }
  await page.setViewportSize({ width: 1280, height: 900 })
  assert.match(await page.locator('.provenance').first().textContent(), /as of .*source: /, `${name} says no time or source`)
  const charts = await page.locator('figure.chart').evaluateAll(all => all.map(c => ({
    label: c.querySelector('[role=img]')?.getAttribute('aria-label'), rows: c.querySelectorAll('table tbody tr').length, queries: c.querySelectorAll('pre').length, card: c.closest('.card')?.textContent ?? '',
  })))
  for (const c of charts) assert.ok(c.label && c.rows > 1 && (c.queries > 0 || /ConfigMap/.test(c.card)), `${name}: ${JSON.stringify({ ...c, card: '' })}`)
}

/** Opens the dashboard of the playground again: its address opens one session only. */
async function openAgain() {
  const again = await start('crane', ['dashboard', '--kubeconfig', kubeconfig(), '--prometheus', playground.text().match(/^ +prometheus +(\S+)$/m)[1], '--open=false', '--no-cache'], /http:\S+token=\S+/, minutes)
  const opened = await openPage(browser, new URL(again.match).origin)
  opened.page.setDefaultTimeout(minutes)
  await opened.page.goto(again.match)
  await loaded(opened.page)
  return { ...opened, origin: new URL(again.match).origin, close: async () => { await opened.context.close(); again.process.kill('SIGTERM') } }
}

test('forecast, rules, costs by label and the details of nodes', { skip, timeout: 8 * minutes }, async () => {
  const deployments = (await get('/apis/apps/v1/deployments')).items
  const { namespace, name: target } = deployments.find(d => d.spec.replicas > 1 && d.metadata.namespace !== 'crane-system').metadata
  await call('POST', `/apis/autoscaling.crane.io/v1alpha1/namespaces/${namespace}/effectivehorizontalpodautoscalers`, {
    apiVersion: 'autoscaling.crane.io/v1alpha1', kind: 'EffectiveHorizontalPodAutoscaler', metadata: { name: 'browser' },
    spec: {
      scaleTargetRef: { apiVersion: 'apps/v1', kind: 'Deployment', name: target }, minReplicas: 1, maxReplicas: 20, scaleStrategy: 'Preview',
      metrics: [{ type: 'Resource', resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization: 50 } } }],
      prediction: { predictionWindowSeconds: 3600, predictionAlgorithm: { algorithmType: 'auto' } },
    },
  })
  const node = (await get('/api/v1/nodes')).items[0].metadata.name
  const zone = name => ({ name, type: 'Node', resources: { capacity: { cpu: '4' }, allocatable: { cpu: '4', memory: '8Gi' } } })
  await call('POST', '/apis/topology.crane.io/v1alpha1/noderesourcetopologies', {
    apiVersion: 'topology.crane.io/v1alpha1', kind: 'NodeResourceTopology', metadata: { name: node }, zones: [zone('node0'), zone('node1')],
    craneManagerPolicy: { cpuManagerPolicy: 'Static', topologyManagerPolicy: 'SingleNUMANodePodLevel' },
  })
  await call('POST', `/api/v1/namespaces/${namespace}/events`, {
    metadata: { name: 'browser.1' }, reason: 'Evicted', message: 'memory of the node is above 90 %', type: 'Normal', source: { component: 'crane-agent', host: node },
    involvedObject: { kind: 'Pod', namespace, name: 'web' }, lastTimestamp: new Date().toISOString().replace(/\.\d+/, ''),
  })
  const { page, problems, origin, close } = await openAgain()

  await page.goto(`${origin}/nodes?node=${node}`)
  await page.getByText(`${namespace}/web: memory of the node is above 90 %`).waitFor()
  await page.getByRole('row', { name: /^node1 4/ }).waitFor()
  await page.locator('.attention').getByText('Evicted').waitFor()
  assert.ok(await page.locator('.heat button').count() >= 4)
  await checkPage(page, 'node')

  await page.goto(origin + '/cost?by=label&label=app.kubernetes.io/name&window=1d')
  await page.locator('main table tbody tr').nth(1).waitFor()
  await checkPage(page, 'cost-label')

  await page.goto(origin + '/rules?new=1')
  await page.getByLabel('Name', { exact: true }).fill('browser')
  await page.getByRole('button', { name: 'Dry run' }).click()
  await page.getByText(/The rule selects \d+ objects\./).waitFor()
  assert.equal((await get('/apis/analysis.crane.io/v1alpha1/recommendationrules/browser')).code, 404, 'a dry run created the rule')
  await checkPage(page, 'rule')
  await page.locator('.card').getByRole('button', { name: 'Create a rule' }).click()
  await page.getByText('Rule browser is created.').waitFor()
  assert.equal((await get('/apis/analysis.crane.io/v1alpha1/recommendationrules/browser')).metadata?.name, 'browser')

  await page.goto(`${origin}/autoscaling?name=${namespace}/browser`)
  await until('a forecast', async () => {
    await page.reload()
    await loaded(page)
    return await page.getByRole('button', { name: 'Forecast range, 50 % to 95 %' }).count() > 0 && await page.getByRole('button', { name: 'Forecast', exact: true }).count() > 0
  }, 4 * minutes)
  await page.getByRole('button', { name: 'Replicas for the load alone' }).waitFor()
  await checkPage(page, 'forecast')
  await close()
  assert.deepEqual(problems, [])
})

/** Forwards connections to an address until it is cut. It does not keep the process of the test alive. */
async function relay(to) {
  const sockets = new Set()
  const server = createServer(socket => {
    const other = connect(Number(to.port), to.hostname)
    for (const s of [socket, other]) { sockets.add(s); s.on('close', () => { sockets.delete(s); socket.destroy(); other.destroy() }).on('error', () => undefined) }
    socket.pipe(other).pipe(socket)
  }).unref()
  const listen = port => new Promise(resolve => server.listen(port, '127.0.0.1', resolve))
  await listen(0)
  const { port } = server.address()
  return { url: `http://127.0.0.1:${port}`, cut: () => { for (const s of sockets) s.destroy(); return new Promise(resolve => server.close(resolve)) }, mend: () => listen(port) }
}

/** Returns the process of the API server, a child of the playground. */
function apiServer() {
  for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    try {
      const parent = readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) /, '').split(' ')[1]
      if (Number(parent) === playground.process.pid && readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[1] === 'apiserver') return Number(pid)
    } catch { /* The process has ended. */ }
  }
  return 0
}

/** Creates a service account with a ClusterRole in its namespace, and returns a token of it. */
async function account(namespace, name, role) {
  const accounts = `/api/v1/namespaces/${namespace}/serviceaccounts`
  await call('POST', accounts, { metadata: { name } })
  if (role) {
    await call('POST', `/apis/rbac.authorization.k8s.io/v1/namespaces/${namespace}/rolebindings`, {
      metadata: { name }, roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: role }, subjects: [{ kind: 'ServiceAccount', name, namespace }],
    })
  }
  return (await call('POST', `${accounts}/${name}/token`, { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} })).status.token
}

test('a person of one namespace logs in, sees it alone, and is logged out when the token is revoked', { skip, timeout: 8 * minutes }, async () => {
  // The server's own account may list what it shares, as in config/components/dashboard.
  const own = await account('crane-system', 'crane-dashboard')
  await call('POST', '/apis/rbac.authorization.k8s.io/v1/clusterroles', { metadata: { name: 'crane-dashboard' }, rules: [{ apiGroups: ['analysis.crane.io', 'autoscaling.crane.io'], resources: ['recommendations', 'recommendationrules', 'effectivehorizontalpodautoscalers', 'effectiveverticalpodautoscalers'], verbs: ['list'] }] })
  await call('POST', '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', { metadata: { name: 'crane-dashboard' }, roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'crane-dashboard' }, subjects: [{ kind: 'ServiceAccount', name: 'crane-dashboard', namespace: 'crane-system' }] })
  const config = join(folder, 'dashboard.kubeconfig')
  const text = readFileSync(kubeconfig(), 'utf8')
  writeFileSync(config, JSON.stringify({
    apiVersion: 'v1', kind: 'Config', 'current-context': 'a', contexts: [{ name: 'a', context: { cluster: 'a', user: 'a' } }], users: [{ name: 'a', user: { token: own } }],
    clusters: [{ name: 'a', cluster: { server: text.match(/server: (\S+)/)[1], 'certificate-authority-data': text.match(/certificate-authority-data: (\S+)/)[1] } }],
  }))
  const prometheus = playground.text().match(/^ +prometheus +(\S+)$/m)[1]
  const history = await relay(new URL(prometheus))
  const serve = listen => start('crane', ['dashboard', 'serve', '--kubeconfig', config, '--prometheus', history.url, '--listen', listen], /https:\S+\n/, minutes)
  server = await serve('127.0.0.1:0')
  const origin = new URL(server.match).origin
  const person = await account('shop', 'ann', 'edit')

  const { page, problems, expect } = await openPage(browser, origin)
  expect(401)
  expect(403)
  page.setDefaultTimeout(minutes)
  await page.goto(origin + '/worklist?state=ready')
  await page.getByLabel('Token').fill('nonsense')
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.getByRole('alert').waitFor()
  assert.deepEqual(await violations(page), [], 'login')
  await screenshot(page, 'cluster-login')
  await page.getByLabel('Token').fill(person)
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.locator('[data-index="0"]').waitFor()
  const spaces = await page.locator('[data-index] small').allTextContents()
  assert.deepEqual([...new Set(spaces.map(s => s.split(' · ')[1]))], ['shop'])
  await screenshot(page, 'cluster-worklist')
  await page.locator('[data-index="0"]').getByRole('link').click()
  await page.locator('.chart canvas').waitFor()
  await page.locator('.steps li').first().waitFor()
  const workload = page.url()

  await page.goto(origin + '/overview')
  await page.getByText('needs the right: list nodes in all namespaces').waitFor()
  for (const record of ['crane-savings', 'oom-record']) await page.locator('.state code').filter({ hasText: `get configmaps/${record} in namespace crane-system` }).waitFor()
  assert.deepEqual(await violations(page), [], 'overview of one namespace')
  await screenshot(page, 'cluster-overview')

  // Without Prometheus the workload keeps its recommendation; the chart says what is missing, and comes back by itself.
  expect(503)
  await history.cut()
  await page.goto(workload.replace(/\?.*/, '') + '?range=3d')
  await page.getByRole('heading', { name: 'A data source does not answer' }).waitFor()
  await page.locator('.figure.lead').getByText(/\d/).first().waitFor()
  assert.deepEqual(await violations(page), [], 'without Prometheus')
  await screenshot(page, 'cluster-no-prometheus')
  await history.mend()
  await page.locator('.chart canvas').waitFor()

  // The API server restarts while a page is open: the session goes on, and the data are there.
  const old = apiServer()
  assert.notEqual(old, 0, 'no process of the API server')
  await page.goto(origin + '/worklist?state=ready')
  await page.locator('[data-index="0"]').waitFor()
  process.kill(old, 'SIGKILL')
  await until('another API server', async () => { const pid = apiServer(); return pid !== 0 && pid !== old }, minutes)
  assert.ok(await page.locator('[data-index="0"]').isVisible(), 'the open page lost its rows')
  await page.goto(origin + '/health')
  await until('the health of the cluster after the restart', async () => {
    assert.equal(await page.getByLabel('Token').count(), 0, 'a restart of the API server ended the session')
    return await page.locator('main table tbody tr').count() > 0
  }, 2 * minutes)

  // A restart of the dashboard ends the session; the page asks for a login and comes back.
  expect('offline')
  server.process.kill('SIGTERM')
  await new Promise(resolve => server.process.once('exit', resolve))
  server = await serve(new URL(origin).host)
  await page.getByRole('link', { name: 'Recommendations' }).click()
  await page.getByText('The session has expired').waitFor()
  await page.getByLabel('Token').fill(person)
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.locator('[data-index="0"]').waitFor()

  for (const name of ['cost', 'nodes', 'rules']) {
    await page.goto(`${origin}/${name}`)
    await page.locator('.state code').filter({ hasText: 'list' }).waitFor()
    assert.deepEqual(await violations(page), [], name)
  }
  await screenshot(page, 'cluster-forbidden')

  await call('DELETE', '/api/v1/namespaces/shop/serviceaccounts/ann')
  await until('the end of the session', async () => {
    await page.goto(origin + '/health')
    await page.waitForFunction(() => document.querySelector('main h1, main h2') && !document.querySelector('.loading'))
    return await page.getByLabel('Token').count() === 1
  }, 2 * minutes)
  assert.deepEqual(problems, [])
})
