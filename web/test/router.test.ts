import test from 'node:test'
import assert from 'node:assert/strict'
import { changedQuery, parseLocation, path } from '../src/lib/router'
import { parseFailure, kindOf } from '../src/lib/http'
import { windowOf } from '../src/ui/grid'

test('names survive the way into a path and back', () => {
  for (const name of ['web', 'web.v2', 'a/b', 'ü ?&#%', '100%']) {
    assert.deepEqual(parseLocation('http://x' + path('workload', 'shop', name)).path, ['workload', 'shop', name])
  }
  assert.deepEqual(parseLocation('http://x/%E0%A4%A').path, ['%E0%A4%A'], 'a broken escape is not an error')
})

test('an empty value removes a parameter', () => {
  assert.equal(changedQuery('?a=1&b=2', { a: '', c: 'x y' }), '?b=2&c=x+y')
  assert.equal(changedQuery('?a=1', { a: '' }), '')
})

test('failures have the kind of their status and the text of either form', () => {
  const full = parseFailure(403, '{"error":{"message":"no","right":"list pods"}}')
  assert.deepEqual([full.kind, full.message, full.right], ['forbidden', 'no', 'list pods'])
  assert.equal(parseFailure(500, '{"error":"boom"}').message, 'boom')
  assert.equal(parseFailure(502, '<html>' + 'x'.repeat(500)).message.length, 300)
  assert.equal(parseFailure(503, '', '').message, 'HTTP 503')
  assert.equal(kindOf(401), 'expired')
  assert.equal(kindOf(504), 'unavailable')
})

test('the window covers the view and stays within the rows', () => {
  assert.deepEqual(windowOf(0, 340, 34, 20000, 8), { first: 0, count: 26 })
  const middle = windowOf(34000, 340, 34, 20000, 8)
  assert.ok(middle.first <= 1000 && middle.first + middle.count >= 1010)
  const end = windowOf(20000 * 34, 340, 34, 20000, 8)
  assert.equal(end.first + end.count, 20000)
  assert.deepEqual(windowOf(99999, 340, 34, 3, 8), { first: 0, count: 3 })
  assert.equal(windowOf(0, 340, 34, 0).count, 0)
})
