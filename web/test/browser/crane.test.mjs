// The pages against `crane dashboard` itself, with series from files: needs CRANE_BIN, the folder of crane.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { launch, openPage, screenshot, violations } from './browser.mjs'

const crane = join(process.env.CRANE_BIN ?? '', 'crane')
const skip = process.env.CRANE_BIN && existsSync(crane) && spawnSync(crane, ['dashboard', '--help']).status === 0 ? false : 'CRANE_BIN does not name a folder with a crane that has the command dashboard'

let browser, server, folder
before(async () => {
  if (skip) return
  folder = mkdtempSync(join(tmpdir(), 'crane-dashboard-'))
  const end = Math.floor(Date.now() / 1000 / 300) * 300
  for (const [name, base] of [['web', 0.4], ['worker', 1.6]]) {
    const lines = ['ts,value']
    for (let at = end - 14 * 86400; at <= end; at += 300) lines.push(`${at},${(base * (1 + 0.5 * Math.sin(at / 86400 * 2 * Math.PI)) + (at % 7) * 0.01).toFixed(4)}`)
    writeFileSync(join(folder, name + '.csv'), lines.join('\n') + '\n')
  }
  server = await start(['dashboard', '--from', folder, '--resource', 'cpu', '--open=false', '--no-cache'])
  browser = await launch()
})
after(async () => {
  await browser?.close()
  server?.process.kill('SIGTERM')
  if (folder) rmSync(folder, { recursive: true, force: true })
})

/** Starts crane and returns the address that it prints. */
function start(args) {
  const process = spawn(crane, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  return new Promise((resolve, reject) => {
    let text = ''
    const read = chunk => {
      text += chunk
      const link = text.match(/https?:\/\/\S+/)
      if (link) resolve({ process, link: link[0] })
    }
    process.stdout.on('data', read)
    process.stderr.on('data', read)
    process.on('exit', code => reject(new Error(`crane ended with ${code}: ${text}`)))
  })
}

test('open the link, find the largest saving, understand it, export it', { skip }, async () => {
  const origin = new URL(server.link).origin
  const { page, problems } = await openPage(browser, origin)
  await page.goto(server.link)
  await page.getByRole('navigation').waitFor()
  assert.equal(new URL(page.url()).search.includes('token'), false, 'the token stays in the address')
  const entries = await page.locator('.nav a').evaluateAll(links => links.map(a => a.getAttribute('href')))
  assert.ok(entries.includes('/worklist'), entries.join())
  for (const entry of entries) {
    await page.goto(origin + entry)
    await page.locator('main h1').first().waitFor()
    await page.waitForFunction(() => !document.querySelector('.loading'), null, { timeout: 60_000 })
    assert.deepEqual(await violations(page), [], entry)
    await screenshot(page, 'crane' + entry.replaceAll('/', '-'))
  }
  await page.goto(origin + '/worklist')
  await page.locator('[data-index="0"]').waitFor()
  await page.locator('[data-index="0"] input').click()
  await page.getByRole('button', { name: 'Export' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByRole('button', { name: 'CSV' }).click()
  await dialog.locator('pre').filter({ hasText: /we|worker/ }).waitFor()
  await page.keyboard.press('Escape')
  await page.locator('[data-index="0"]').getByRole('link').click()
  await page.locator('.chart canvas').waitFor()
  await page.locator('.steps li').first().waitFor()
  await page.getByLabel('Margin').waitFor()
  await screenshot(page, 'crane-workload')
  assert.deepEqual(await violations(page), [], 'workload')
  assert.deepEqual(problems, [])
})

test('without the token nothing is shown', { skip }, async () => {
  const origin = new URL(server.link).origin
  const { page, context } = await openPage(browser, origin)
  await page.goto(origin + '/worklist')
  await page.getByText('Open the address that crane dashboard prints').waitFor()
  // The link was used up by the first test.
  await page.goto(server.link)
  await page.getByText('Open the address that crane dashboard prints').waitFor()
  await context.close()
})
