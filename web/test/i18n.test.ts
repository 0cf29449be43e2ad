import test from 'node:test'
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { en } from '../src/i18n/en'
import { zh } from '../src/i18n/zh'
import { preferred, t } from '../src/i18n'

const parameters = (s: string) => [...s.matchAll(/\{(\w+)\}/g)].map(m => m[1]).sort().join()

test('each language has each text, with the same parameters', () => {
  assert.deepEqual(Object.keys(zh).sort(), Object.keys(en).sort())
  for (const key of Object.keys(en) as (keyof typeof en)[]) {
    assert.ok(en[key].trim() && zh[key].trim(), `${key} is empty`)
    assert.equal(parameters(zh[key]), parameters(en[key]), key)
  }
})

test('Chinese texts are Chinese', () => {
  // Names of kinds, formats and tools have no translation.
  const same = (Object.keys(en) as (keyof typeof en)[]).filter(k => /[a-z]/i.test(en[k].replace(/\{\w+\}/g, '')) && !/[\u4e00-\u9fff]/.test(zh[k]))
  const names = /^(CPUs?|CSV|PromQL|Kustomize|Helm values|Crane|Pod|Recommender|EffectiveHorizontalPodAutoscaler|EffectiveVerticalPodAutoscaler|RecommendationRule)$/
  assert.deepEqual(same.filter(k => !names.test(zh[k])), [])
})

function sources(dir: string): string[] {
  return readdirSync(dir, { withFileTypes: true }).flatMap(e => e.isDirectory() ? sources(dir + '/' + e.name) : /\.tsx?$/.test(e.name) ? [dir + '/' + e.name] : [])
}

test('each text is used', () => {
  const code = sources('src').filter(f => !f.includes('/i18n/')).map(f => readFileSync(f, 'utf8')).join('\n')
  // Prefixes of keys that are built from a value of the server.
  const dynamic = [...code.matchAll(/(?:tOr|t)\(\(?(?:'([\w.]+\.)' \+|`([\w.]+\.)\$\{)/g)].map(m => m[1] ?? m[2]!)
  const unused = Object.keys(en).filter(k => !code.includes(`'${k}'`) && !dynamic.some(p => k.startsWith(p)))
  assert.deepEqual(unused, [])
})

test('parameters are replaced, unknown ones stay visible', () => {
  assert.equal(t('nav.cluster', { name: 'eu' }), en['nav.cluster'].replace('{name}', 'eu'))
  assert.equal(t('nav.cluster'), en['nav.cluster'])
})

test('the language is the stored one, or the first that the browser prefers', () => {
  assert.equal(preferred('zh', ['en-GB']), 'zh')
  assert.equal(preferred(null, ['zh-CN', 'en']), 'zh')
  assert.equal(preferred(null, ['de-DE', 'en', 'zh']), 'en')
  assert.equal(preferred('xx', ['fr']), 'en')
})
