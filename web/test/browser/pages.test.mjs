// Each page at three widths, light and dark: no violation, no console error, no request to another origin, no horizontal scrolling.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { launch, openPage, screenshot, violations } from './browser.mjs'
import { startFixture } from './fixture.mjs'

const pages = {
  overview: '/overview', worklist: '/worklist', workload: '/workload/prod/shop/Deployment/web', autoscaling: '/autoscaling?name=shop/web',
  nodes: '/nodes?node=worker-3.eu-1.internal&pod=shop/web-1', cost: '/cost', rules: '/rules?new=1', health: '/health',
}
let browser, server
before(async () => { browser = await launch(); server = await startFixture() })
after(async () => { await browser?.close(); server?.close() })

for (const [width, height] of [[400, 860], [1280, 900], [3840, 2160]]) {
  for (const colorScheme of ['light', 'dark']) {
    test(`pages at ${width} px, ${colorScheme}`, async () => {
      const { page, context, problems } = await openPage(browser, server.origin, { viewport: { width, height }, colorScheme })
      for (const [name, path] of Object.entries(pages)) {
        await page.goto(server.origin + path)
        await settled(page)
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth), false, `${name} is wider than ${width} px`)
        // The rules of axe do not depend on the width, apart from what is hidden or scrolls: each page is checked narrow and wide, light and dark.
        if (width === 400 ? colorScheme === 'light' : width === 1280 && colorScheme === 'dark') assert.deepEqual(await violations(page), [], name)
        await screenshot(page, `${name}-${width}-${colorScheme}`)
      }
      assert.deepEqual(problems, [])
      await context.close()
    })
  }
}

test('pages in Chinese', async () => {
  const { page, context, problems } = await openPage(browser, server.origin, { locale: 'zh-CN' })
  for (const [name, path] of Object.entries(pages)) {
    await page.goto(server.origin + path)
    await settled(page)
    assert.equal(await page.locator('html').getAttribute('lang'), 'zh-CN')
    const english = await page.evaluate(() => [...document.querySelectorAll('main button, main th, main h2, main label')].map(e => e.textContent.trim()).filter(s => /^(Saving|Close|Cancel|Memory|Namespace|Request|State|Workload|Table)$/.test(s)))
    assert.deepEqual(english, [], name)
    await screenshot(page, `${name}-zh`)
  }
  assert.deepEqual(problems, [])
  await context.close()
})

test('the policy forbids what the page does not need', async () => {
  const { page, context } = await openPage(browser, server.origin)
  await page.goto(server.origin + '/health')
  const ran = await page.evaluate(() => { const s = document.createElement('script'); s.textContent = 'window.inline = true'; document.head.append(s); return window.inline === true })
  assert.equal(ran, false, 'an inline script ran')
  const styled = await page.evaluate(() => { const d = document.createElement('div'); d.innerHTML = '<p style="color: rgb(1, 2, 3)">x</p>'; document.body.append(d); return getComputedStyle(d.firstChild).color })
  assert.notEqual(styled, 'rgb(1, 2, 3)', 'an inline style was applied')
  await context.close()
})

async function settled(page) {
  await page.locator('main h1').first().waitFor()
  await page.waitForFunction(() => !document.querySelector('.loading'))
}
