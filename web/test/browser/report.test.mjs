// The HTML report of `crane recommend` at the widths of telephones to 4K screens: the page that the tests of the command compare with, and
// the style sheet of its template.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { launch, openPage, screenshot } from './browser.mjs'

const cli = new URL('../../../internal/cli/', import.meta.url)
const style = readFileSync(new URL('output.html.tmpl', cli), 'utf8').match(/<style>[^]*?<\/style>/)[0]
const report = readFileSync(new URL('testdata/recommend.html', cli), 'utf8').replace(/<style>\s*<\/style>/, () => style)

let browser
before(async () => { browser = await launch() })
after(async () => { await browser?.close() })

test('the report needs no horizontal scrolling and its notes have room for words', async () => {
  assert.ok(style.includes('.requests') && report.includes(style))
  const { page, context, problems } = await openPage(browser, 'file://')
  await page.setContent(report)
  for (const width of [400, 700, 1000, 1210, 1400, 2000, 3840]) {
    await page.setViewportSize({ width, height: 900 })
    // Tables of a replay scroll within their box; the list of requests must not.
    const found = await page.evaluate(() => ({
      overflow: Math.max(...[document.documentElement, document.querySelector('.requests').parentElement].map(box => box.scrollWidth - box.clientWidth)),
      notes: [...document.querySelectorAll('.requests tr.note td')].map(note => note.getBoundingClientRect().width),
    }))
    assert.ok(found.overflow <= 0, `${width} px: ${found.overflow} px are outside the window`)
    assert.ok(found.notes.length > 1 && found.notes.every(room => room >= Math.min(width * 0.6, 600)), `${width} px: notes have ${found.notes} px`)
    await screenshot(page, `report-${width}`)
  }
  assert.deepEqual(problems, [])
  await context.close()
})
