// Starts chromium for the tests and collects what must not happen: console errors, failed scripts, requests to other origins.
import { existsSync, mkdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import { chromium } from 'playwright-core'

const require = createRequire(import.meta.url)
const axeSource = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')

export const executable = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find(existsSync)

export async function launch() {
  return chromium.launch({ executablePath: executable, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] })
}

/** Opens a page whose problems are collected; origin is the only one that it may ask. */
export async function openPage(browser, origin, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: 'en-GB', timezoneId: 'UTC', ignoreHTTPSErrors: true, ...options })
  const page = await context.newPage()
  const problems = []
  page.on('console', m => { if (m.type() === 'error' && !expected(m)) problems.push(`console: ${m.text()}`) })
  page.on('pageerror', e => problems.push(`error: ${e.message}`))
  page.on('request', r => { const u = new URL(r.url()); if (u.origin !== origin && u.protocol.startsWith('http')) problems.push(`external request: ${r.url()}`) })
  // Answers with an error status that a test asks for are not problems of the page.
  const expectedStatuses = new Set()
  const expected = m => [...expectedStatuses].some(s => m.text().includes(`status of ${s}`)) || (expectedStatuses.has('offline') && m.text().includes('net::ERR_'))
  return { context, page, problems, expect: status => expectedStatuses.add(status) }
}

/** Returns the violations that axe-core finds, as texts. */
export async function violations(page) {
  // Evaluated by the test and not by the page, so the page's policy stays as it is.
  await page.evaluate(axeSource)
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }))
  return result.violations.map(v => `${v.id}: ${v.nodes.map(n => n.target.join(' ') + ' ' + (n.any[0]?.message ?? n.failureSummary)).slice(0, 4).join(' | ')}`)
}

export async function screenshot(page, name) {
  const dir = process.env.CRANE_SCREENSHOTS
  if (!dir) return
  mkdirSync(dir, { recursive: true })
  await page.screenshot({ path: `${dir}/${name}.png` })
}
