import test from 'node:test'
import assert from 'node:assert/strict'
import type { Series } from '../src/api'
import { align, held, linesOf, rangeOf, withRecommended } from '../src/lib/series'
import { thinned } from '../src/ui/chart'
import { emptyRule, ruleYAML, scalar } from '../src/lib/rule'

function series(kind: string, t: number[], v: (number | null)[]): Series {
  return { kind, resource: 'cpu', unit: 'cores', t, v }
}

test('series of different times share one axis; a gap stays a gap', () => {
  const { times, values } = align([series('usage', [1, 2, 4], [1, null, 3]), series('forecast', [3, 4], [7, 8])])
  assert.deepEqual(times, [1, 2, 3, 4])
  assert.deepEqual(values, [[1, null, undefined, 3], [undefined, undefined, 7, 8]])
  assert.deepEqual(align([{ ...series('usage', [1], []), v: null }]).values, [[null]], 'a missing value is a gap')
})

test('a request holds until it changes, and is unknown before its first value', () => {
  assert.deepEqual(held([undefined, 2, undefined, null, undefined, 3]), [null, 2, 2, null, null, 3])
})

test('lines have an order and a band only if both bounds are there', () => {
  const all = linesOf([series('forecastHigh', [1, 2], [3, 3]), series('forecastLow', [1, 2], [1, 1]), series('usage', [1, 2], [1, 2]), series('unknown', [1], [1]), series('limit', [1, 2], [9, 9])])
  assert.deepEqual(all.lines.map(l => l.id), ['usage', 'limit', 'forecastHigh', 'forecastLow'])
  assert.equal(all.lines[2]!.bandTo, 'forecastLow')
  assert.equal(all.lines[1]!.hidden, true, 'a limit far above the rest is hidden first')
  assert.equal(linesOf([series('forecastHigh', [1], [3])]).lines[0]!.bandTo, undefined)
  assert.deepEqual(linesOf([]), { times: [], lines: [] })
})

test('the present recommendation is a line where there is no history of it', () => {
  const use = series('usage', [1, 2, 3], [1, 1, 1])
  assert.deepEqual(withRecommended([use], 'cpu', 0.5)[1]!.v, [0.5, 0.5])
  assert.equal(withRecommended([use], 'cpu', null).length, 1)
  assert.equal(withRecommended([], 'cpu', 0.5).length, 0)
  assert.equal(withRecommended([use, series('recommended', [1], [2])], 'cpu', 0.5).length, 2)
})

test('a range is that of the link, or a span that ends at a whole minute', () => {
  const of = (q: string) => rangeOf(new URLSearchParams(q), 1_000_030)
  assert.deepEqual(of('from=10&to=20'), { from: 10, to: 20, span: '' })
  assert.deepEqual(of('range=1d'), { from: 1_000_020 - 86400, to: 1_000_020, span: '1d' })
  for (const bad of ['', 'range=never', 'from=20&to=10', 'from=x&to=y']) assert.equal(of(bad).span, '14d', bad)
})

test('a table has at most so many rows, within the zoom', () => {
  const times = Array.from({ length: 1000 }, (_, i) => i)
  assert.ok(thinned(times, null, 120).length <= 120)
  assert.deepEqual(thinned(times, [10, 13], 120), [10, 11, 12, 13])
  assert.deepEqual(thinned([], null, 120), [])
})

test('a form is a rule; odd names are quoted', () => {
  assert.equal(ruleYAML({ ...emptyRule, name: 'web', namespaces: 'shop, ml', labels: 'team=a b=', kinds: ['Deployment'] }), `apiVersion: analysis.crane.io/v1alpha1
kind: RecommendationRule
metadata:
  name: web
spec:
  runInterval: "24h"
  namespaceSelector:
    matchNames:
    - shop
    - ml
  resourceSelectors:
  - kind: Deployment
    apiVersion: apps/v1
    labelSelector:
      matchLabels:
        team: a
        b: ""
  recommenders:
  - name: Resource
`)
  assert.match(ruleYAML({ ...emptyRule, kinds: [], recommenders: [] }), /any: true\n {2}resourceSelectors: \[\]\n {2}recommenders: \[\]\n$/)
  for (const v of ['true', 'yes', 'NULL', '1', 'a: b', '#x', "'", '"', 'a\nb', '*x', '']) assert.equal(scalar(v), JSON.stringify(v), v)
})
