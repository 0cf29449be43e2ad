// What an engineer does every week, against a real API server, Prometheus and craned: find the largest saving, understand it, export it, adopt it,
// watch the pods being resized, roll back. Needs CRANE_BIN, the folder of crane and of the playground's binaries.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { request } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { launch, openPage, screenshot, violations } from './browser.mjs'

const bin = process.env.CRANE_BIN ?? ''
const missing = ['crane', 'playground', 'controlplane', 'craned'].filter(name => !existsSync(join(bin, name)))
// With CRANE_PLAYGROUND, the folder of a playground that runs already, none is started.
const skip = bin && missing.length === 0 && spawnSync(join(bin, 'crane'), ['dashboard', '--help']).status === 0 ? false : `CRANE_BIN does not name a folder with ${missing.join(', ') || 'a crane that has the command dashboard'}`
const minutes = 60_000

let browser, playground, dashboard, folder
before(async () => {
  if (skip) return
  folder = process.env.CRANE_PLAYGROUND ?? mkdtempSync(join(tmpdir(), 'crane-playground-'))
  const arguments_ = ['--data-dir', folder, '--workloads', '10', '--nodes', '4', '--days', '8', '--only', 'apiserver,controller-manager,scheduler,prometheus,craned']
  // The addresses are printed after the recommendations.
  if (!process.env.CRANE_PLAYGROUND) playground = await start('playground', arguments_, /^ +prometheus +http:\S+\n/m, 5 * minutes)
  const prometheus = playground?.match.trim().split(/ +/)[1] ?? process.env.CRANE_PLAYGROUND_PROMETHEUS
  assert.ok(prometheus, 'the address of Prometheus is not known')
  dashboard = await start('crane', ['dashboard', '--kubeconfig', kubeconfig(), '--prometheus', prometheus, '--open=false'], /https?:\/\/\S+token=\S+/, minutes)
  browser = await launch()
}, { timeout: 6 * minutes })
after(async () => {
  await browser?.close()
  dashboard?.process.kill('SIGTERM')
  if (playground) {
    const ended = new Promise(resolve => playground.process.once('exit', resolve))
    playground.process.kill('SIGTERM')
    await ended
    rmSync(folder, { recursive: true, force: true })
  }
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

/** Reads an object from the API server with the certificate of the kubeconfig. */
async function get(path) {
  const text = readFileSync(kubeconfig(), 'utf8')
  const data = key => Buffer.from(text.match(new RegExp(key + '-data: (\\S+)'))?.[1] ?? '', 'base64')
  const token = text.match(/token: (\S+)/)?.[1]
  return new Promise((resolve, reject) => {
    const options = { ca: data('certificate-authority'), ...(token ? { headers: { Authorization: 'Bearer ' + token } } : { cert: data('client-certificate'), key: data('client-key') }) }
    request(text.match(/server: (\S+)/)[1] + path, options, response => {
      const chunks = []
      response.on('data', c => chunks.push(c)).on('end', () => resolve(JSON.parse(Buffer.concat(chunks).toString())))
    }).on('error', reject).end()
  })
}

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
  const origin = new URL(dashboard.match).origin
  const { page, problems } = await openPage(browser, origin)
  page.setDefaultTimeout(minutes)
  await page.goto(dashboard.match)
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
