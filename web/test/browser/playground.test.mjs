// What an engineer does every week, against a real API server, Prometheus and craned: find the largest saving, understand it, export it, adopt it,
// watch the pods being resized, roll back. Needs CRANE_BIN, the folder of crane and of the playground's binaries.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:https'
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
  for (const [name, path] of [['overview', '/overview'], ['worklist', '/worklist'], ['nodes', '/nodes'], ['cost', '/cost'], ['rules', '/rules'], ['health', '/health'], ['autoscaling', '/autoscaling']]) {
    await page.goto(origin + path)
    await page.locator('main h1').first().waitFor()
    await page.waitForFunction(() => !document.querySelector('.loading'))
    // A page whose data the server is still reading repeats its request.
    if (name !== 'autoscaling') await until(`${name} shows data instead of a state`, async () => await page.locator('.state').count() === 0, minutes)
    assert.deepEqual(await violations(page), [], name)
    await screenshot(page, 'playground-' + name)
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
  assert.deepEqual(await violations(page), [], 'workload')
  await screenshot(page, 'playground-workload')

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

test('a person of one namespace logs in, sees it alone, and is logged out when the token is revoked', { skip, timeout: 5 * minutes }, async () => {
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
  server = await start('crane', ['dashboard', 'serve', '--kubeconfig', config, '--prometheus', prometheus, '--listen', '127.0.0.1:0'], /https:\S+\n/, minutes)
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
  for (const name of ['cost', 'nodes', 'rules']) {
    await page.goto(`${origin}/${name}`)
    await page.locator('.state code').filter({ hasText: 'list' }).waitFor()
    assert.deepEqual(await violations(page), [], name)
  }
  await screenshot(page, 'cluster-forbidden')

  await call('DELETE', '/api/v1/namespaces/shop/serviceaccounts/ann')
  await until('the end of the session', async () => {
    await page.goto(origin + '/health')
    await page.locator('main h1').first().waitFor()
    await page.waitForFunction(() => !document.querySelector('.loading'))
    return await page.getByLabel('Token').count() === 1
  }, 2 * minutes)
  assert.deepEqual(problems, [])
})
