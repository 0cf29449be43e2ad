// What people do on the pages, against a fixture server; and what they see when something is missing.
import test, { after, afterEach, before, beforeEach } from 'node:test'
import assert from 'node:assert/strict'
import { launch, openPage, screenshot, violations } from './browser.mjs'
import { failure, startFixture } from './fixture.mjs'

let browser, server, page, context, problems, expect
before(async () => { browser = await launch(); server = await startFixture() })
after(async () => { await browser?.close(); server?.close() })
beforeEach(async () => {
  server.state.answers = {}
  server.state.loggedIn = true
  server.state.requests.length = 0;
  ({ page, context, problems, expect } = await openPage(browser, server.origin))
})
afterEach(async () => {
  await context.close()
  assert.deepEqual(problems, [])
})

const open = path => page.goto(server.origin + path)
const writes = () => server.state.requests.filter(r => r.method === 'POST' && r.route === '/action')

test('log in: a wrong token is refused, a right one opens the linked page', async () => {
  server.state.loggedIn = false
  expect(401)
  await open('/worklist?namespace=shop')
  await page.getByLabel('Bearer token').fill('bad')
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.getByRole('alert').filter({ hasText: 'does not accept' }).waitFor()
  assert.deepEqual(await violations(page), [])
  await screenshot(page, 'login-1280-light')
  await page.getByLabel('Bearer token').fill('good')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'Recommendations' }).waitFor()
  assert.equal(await page.getByLabel('Namespace').inputValue(), 'shop')
  await page.getByRole('button', { name: 'Log out' }).click()
  await page.getByLabel('Bearer token').waitFor()
})

test('the largest saving is first; filters, order and page are in the address and in the history', async () => {
  await open('/overview')
  await page.getByRole('link', { name: 'All recommendations' }).click()
  const rows = page.locator('.grid-window .grid-row')
  await rows.first().waitFor()
  const all = await page.locator('#rows').textContent()
  await page.getByRole('textbox', { name: 'Search' }).fill('catalog')
  await page.waitForFunction(() => new URLSearchParams(location.search).get('text') === 'catalog')
  assert.notEqual(await page.locator('#rows').textContent(), all)
  assert.ok((await rows.allTextContents()).every(text => text.includes('catalog')))
  await page.getByRole('button', { name: 'Risk' }).click()
  assert.match(page.url(), /sort=risk/)
  const risks = await rows.locator('.tag').filter({ hasText: /Low|Medium|High/ }).allTextContents()
  const numbers = risks.map(r => Number(r.match(/\d+/)[0]))
  assert.deepEqual(numbers, [...numbers].sort((a, b) => b - a))
  await rows.first().click()
  await page.waitForURL(/\/workload\//)
  await page.goBack()
  await page.waitForURL(/text=catalog.*sort=risk|sort=risk.*text=catalog/)
  assert.equal(await page.getByRole('textbox', { name: 'Search' }).inputValue(), 'catalog')
  await page.goBack()
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
})

test('rows are reached and selected with the keyboard', async () => {
  await open('/worklist')
  const first = page.locator('[data-index="0"]')
  await first.waitFor()
  await first.focus()
  await page.keyboard.press('ArrowDown')
  await page.waitForFunction(() => document.activeElement?.dataset.index === '1')
  await page.keyboard.press('Space')
  await page.keyboard.press('End')
  await page.waitForFunction(() => document.activeElement?.dataset.index === '399')
  await page.keyboard.press('Home')
  await page.waitForFunction(() => document.activeElement?.dataset.index === '0')
  await page.locator('.selection').filter({ hasText: '1 selected' }).waitFor()
  await page.keyboard.press('Enter')
  await page.waitForURL(/\/workload\//)
})

test('export the selection in each format', async () => {
  await open('/worklist?state=ready')
  await page.getByLabel('Select all rows').click()
  await page.getByRole('button', { name: 'Export' }).click()
  const dialog = page.getByRole('dialog')
  for (const [name, format] of [['Kustomize', 'kustomize'], ['Helm values', 'helm'], ['CSV', 'csv'], ['Patch', 'patch']]) {
    await dialog.getByRole('button', { name, exact: true }).click()
    await dialog.locator('pre').filter({ hasText: '# ' + format }).waitFor()
  }
  assert.deepEqual(await violations(page), [])
  const [download] = await Promise.all([page.waitForEvent('download'), dialog.getByRole('button', { name: 'Save file' }).click()])
  assert.equal(download.suggestedFilename(), 'crane-recommendations.yaml')
  await page.keyboard.press('Escape')
  await dialog.waitFor({ state: 'detached' })
})

test('nothing is adopted before the dry run is confirmed, and only what it accepted', async () => {
  await open('/worklist?state=ready')
  for (const i of [0, 1, 2, 3, 4]) await page.locator(`[data-index="${i}"] input`).click()
  await page.getByRole('button', { name: 'Adopt', exact: true }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText('4 of 5 would be accepted').waitFor()
  await dialog.getByText('patch recommendations.analysis.crane.io').waitFor()
  assert.deepEqual(await violations(page), [])
  await screenshot(page, 'adopt-1280-light')
  assert.deepEqual(writes().map(w => w.body.dryRun), [true])
  await dialog.getByRole('button', { name: 'Adopt (4)' }).click()
  await page.getByText('Adopt: 4 of 4 done.').waitFor()
  assert.deepEqual(writes().map(w => w.body.dryRun), [true, false])
  assert.equal(writes()[1].body.items.length, 4)
  assert.ok(writes().every(w => w.csrf === 'csrf'))
})

test('who may not adopt is not offered it', async () => {
  const { session } = await import('./data.mjs')
  server.state.answers['/session'] = { ...session, clusters: [{ ...session.clusters[0], rights: { ...session.clusters[0].rights, adopt: false, createRules: false } }] }
  await open('/worklist')
  await page.locator('[data-index="0"] input').click()
  await page.getByRole('button', { name: 'Export' }).waitFor()
  assert.equal(await page.getByRole('button', { name: 'Adopt', exact: true }).count(), 0)
  await open('/rules')
  await page.getByRole('heading', { name: 'Rules', exact: true }).waitFor()
  assert.equal(await page.getByRole('button', { name: 'Create a rule' }).count(), 0)
})

test('understand a number: chart, table, PromQL, steps, what-if', async () => {
  await open('/workload/prod/shop/Deployment/web')
  await page.locator('.chart canvas').waitFor()
  const legend = page.locator('.legend').getByRole('button', { name: 'Request' })
  assert.equal(await legend.getAttribute('aria-pressed'), 'true')
  await legend.click()
  assert.equal(await legend.getAttribute('aria-pressed'), 'false')
  await page.getByText('Table', { exact: true }).click()
  assert.ok(await page.locator('.chart table tbody tr').count() > 20)
  await page.locator('.chart').getByText('PromQL', { exact: true }).click()
  await page.getByText('container_cpu_usage_seconds_total').first().waitFor()
  await page.getByText('covering 85 % of the days').waitFor()
  await page.getByRole('row', { name: /VPA/ }).waitFor()
  await page.getByRole('row', { name: /KRR/ }).waitFor()
  const figure = page.locator('.figure.lead dd > span').nth(1)
  const before = await figure.textContent()
  await page.getByLabel('Margin').fill('0.5')
  await page.waitForFunction(([sel, old]) => document.querySelectorAll(sel)[1]?.textContent !== old, ['.figure.lead dd > span', before])
  await page.getByText('Saving beside the policy').waitFor()
  await page.getByRole('button', { name: 'Back to the policy' }).click()
  await page.getByText('Saving beside the policy').waitFor({ state: 'detached' })
})

test('zoom by dragging; the range is in the address', async () => {
  await open('/workload/prod/shop/Deployment/web?range=7d')
  const plot = page.locator('.u-over')
  await plot.waitFor()
  const box = await plot.boundingBox()
  await page.mouse.move(box.x + box.width * 0.3, box.y + 40)
  await page.mouse.down()
  await page.mouse.move(box.x + box.width * 0.6, box.y + 60, { steps: 5 })
  await page.mouse.up()
  await page.waitForURL(/from=\d+&to=\d+|to=\d+/)
  await page.getByRole('button', { name: 'Whole range' }).click()
  await page.waitForFunction(() => !location.search.includes('from='))
})

test('a rule is created only after a dry run', async () => {
  await open('/rules?new=1')
  const create = page.locator('.card').getByRole('button', { name: 'Create a rule' })
  await page.getByLabel('Name', { exact: true }).fill('web')
  assert.ok(await create.isDisabled())
  assert.match(await page.getByLabel('YAML').inputValue(), /name: web\n/)
  await page.getByRole('button', { name: 'Dry run' }).click()
  await page.getByText('The rule selects 12 objects.').waitFor()
  await create.click()
  await page.getByText('Rule new is created.').waitFor()
  assert.deepEqual(server.state.requests.filter(r => r.method === 'POST').map(r => r.body.dryRun), [true, false])
})

test('an autoscaler: replicas alone against with forecast, the band, windows of schedules, as a chart and as a table', async () => {
  await open('/autoscaling')
  await page.getByRole('button', { name: 'shop/web' }).click()
  const replicas = page.locator('figure.chart').first()
  for (const name of ['Replicas', 'Replicas for the load alone', 'Replicas with the forecast']) await replicas.getByRole('button', { name, exact: true }).waitFor()
  await replicas.getByText('Schedule (1)').waitFor()
  const forecast = page.locator('figure.chart').nth(1)
  await forecast.getByRole('button', { name: 'Forecast range, 50 % to 95 %' }).waitFor()
  await page.getByText('Scales', { exact: true }).waitFor()
  await forecast.getByText('Table', { exact: true }).click()
  assert.ok(await forecast.locator('tbody tr').count() > 20)
  const { forecast: answer } = await import('./data.mjs')
  const f = answer()
  server.state.answers['/forecast'] = { ...f, metrics: [{ ...f.metrics[0], used: false, unused: 'scaling by it costs more than it avoids' }], replicas: null }
  await page.reload()
  await page.getByText('scaling by it costs more than it avoids').first().waitFor()
  await page.getByText('Does not scale').waitFor()
})

test('costs by a label and another window, as a file', async () => {
  await open('/cost')
  await page.getByRole('button', { name: 'Label', exact: true }).click()
  await page.getByRole('textbox', { name: 'Label' }).fill('team')
  await page.getByText('Frequent keys: team').waitFor()
  const asked = page.waitForResponse(r => { const q = new URL(r.url()).searchParams; return q.get('by') === 'label' && q.get('window') === '7d' && q.get('label') === 'team' })
  await page.getByRole('button', { name: '7d', exact: true }).click()
  await asked
  assert.match(page.url(), /window=7d/)
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV' }).click()])
  assert.equal(download.suggestedFilename(), 'crane-cost-by-label.csv')
})

test('the overview names where trend, savings and OOM kills are kept', async () => {
  await open('/overview')
  await page.getByText('kept in ConfigMap crane-system/crane-savings').first().waitFor()
  await page.getByText('Promised for that time').waitFor()
  for (const amount of ['4,800', '9,600']) await page.locator('.facts').getByText(amount, { exact: false }).first().waitFor()
  await page.getByText('kept in ConfigMap crane-system/oom-record').waitFor()
})

test('parts of the overview that need a right name it', async () => {
  const { overview } = await import('./data.mjs')
  const d = overview()
  const right = name => ({ reason: 'Forbidden', message: 'you may not', right: 'get configmaps/' + name + ' in namespace crane-system' })
  server.state.answers['/overview'] = {
    ...d, trend: [], trendSource: '', oomKills: null, oomSource: '', money: { ...d.money, clusterPerMonth: null, usedPerMonth: null }, costSource: '',
    missing: { cost: { reason: 'Forbidden', message: 'you may not', right: 'list nodes in all namespaces' }, trend: right('crane-savings'), oomKills: right('oom-record') },
  }
  await open('/overview')
  await page.getByText('needs the right: list nodes in all namespaces').waitFor()
  for (const name of ['crane-savings', 'oom-record']) await page.locator('.state code').filter({ hasText: 'configmaps/' + name }).waitFor()
  assert.equal(await page.getByText('The trend begins').count(), 0)
  assert.deepEqual(await violations(page), [])
})

test('why a pod is on its node: verdict, score and reason of each node; the pod is in the address', async () => {
  expect(404)
  await open('/nodes')
  await page.getByLabel('Pod (namespace/name)').fill('shop/web-1')
  await page.getByRole('button', { name: 'Explain' }).click()
  await page.getByText('placed on worker-1').waitFor()
  assert.match(page.url(), /pod=shop%2Fweb-1/)
  await page.getByRole('row', { name: /worker-2 Excluded by load .* water mark of 65.0%/ }).waitFor()
  await page.getByText('248 more nodes are not shown.').waitFor()
  await page.getByText('crane explain scheduling shop/web-1').waitFor()
  assert.deepEqual(await violations(page), [])
  server.state.answers['/placement'] = failure(404, 'NotFound', 'pod shop/web-1: the scheduler has no record of a recent attempt')
  await page.reload()
  await page.getByText('has no record of a recent attempt').waitFor()
})

test('states: forbidden, empty, learning, Prometheus down, not found', async () => {
  expect(403); expect(503); expect(404)
  const cases = [
    ['/nodes', '/nodes', failure(403, 'Forbidden', 'you may not list nodes', { right: 'list nodes' }), 'You may not read this'],
    ['/worklist', '/worklist', { asOf: 0, source: '', currency: 'USD', rows: null }, 'There is no recommendation yet'],
    ['/cost', '/cost', failure(503, 'HistoryUnavailable', 'Prometheus does not answer', { next: 'Check --prometheus.' }), 'A data source does not answer'],
    ['/workload/prod/shop/Deployment/gone', '/workload', failure(404, 'NotFound', 'Deployment shop/gone does not exist'), 'Not found'],
    ['/workload/prod/shop/Deployment/web', '/series', { asOf: 0, source: '', from: 0, to: 0, stepSeconds: 60, thinned: false, series: null, marks: null }, 'Not enough history yet'],
    ['/autoscaling', '/autoscaling', { asOf: 0, source: '', horizontal: null, vertical: null }, 'There is no autoscaler of Crane'],
  ]
  for (const [path, route, answer, text] of cases) {
    server.state.answers = { [route]: answer }
    await open(path)
    await page.getByRole('heading', { name: text }).waitFor()
    assert.deepEqual(await violations(page), [], text)
    await screenshot(page, 'state-' + route.slice(1))
  }
})

test('a session that expires asks for a login and comes back to the page', async () => {
  expect(401)
  await open('/health')
  await page.getByText('2 of 2 replicas').waitFor()
  server.state.answers['/cost'] = failure(401, 'Unauthenticated', 'the session has expired')
  await page.getByRole('link', { name: 'Cost' }).click()
  await page.getByText('The session has expired').waitFor()
  assert.deepEqual(await violations(page), [])
  server.state.answers = {}
  await page.getByLabel('Bearer token').fill('good')
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.getByRole('heading', { name: 'Cost', exact: true }).waitFor()
})

test('a server that cannot answer at the start is asked again', async () => {
  expect(503)
  server.state.answers['/session'] = failure(503, 'APIServerUnavailable', 'the API server is starting')
  await open('/health')
  await page.getByText('the API server is starting').waitFor()
  server.state.answers = {}
  await page.getByText('2 of 2 replicas').waitFor({ timeout: 15_000 })
})

test('a lost connection keeps the data, says so, and ends by itself', async () => {
  expect('offline')
  await open('/health')
  await page.getByText('2 of 2 replicas').waitFor()
  server.state.answers = { '/cost': 'drop', '/session': 'drop' }
  await page.getByRole('link', { name: 'Cost' }).click()
  await page.getByRole('alert').filter({ hasText: 'cannot be reached' }).waitFor()
  await page.getByRole('link', { name: 'Health' }).click()
  await page.getByText('2 of 2 replicas').waitFor()
  server.state.answers = {}
  await page.getByRole('alert').filter({ hasText: 'cannot be reached' }).waitFor({ state: 'detached', timeout: 15_000 })
})

test('language and colors are kept', async () => {
  await open('/overview')
  await page.getByRole('button', { name: '中文' }).click()
  await page.getByRole('heading', { name: '概览' }).waitFor()
  await page.getByRole('button', { name: '深色' }).click()
  await page.reload()
  await page.getByRole('heading', { name: '概览' }).waitFor()
  assert.equal(await page.locator('html').getAttribute('data-theme'), 'dark')
})

test('texts of objects are shown as text', async () => {
  const { overview } = await import('./data.mjs')
  const evil = '<img src=x onerror=window.hit=1>'
  server.state.answers['/overview'] = { ...overview(), attention: [{ severity: 'error', reason: 'X', message: evil, page: 'rules' }], source: evil }
  await open('/overview')
  await page.getByText(evil).first().waitFor()
  assert.equal(await page.evaluate(() => window.hit), undefined)
})
