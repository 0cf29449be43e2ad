import test from 'node:test'
import assert from 'node:assert/strict'
import type { Node, Row } from '../src/api'
import { facet, filterRows, index, labelFacet, noFilter, sortRows, sumSavings } from '../src/lib/worklist'
import { packNodes } from '../src/lib/packing'
import { heatClass, shareOf } from '../src/pages/nodes'
import { costCSV } from '../src/pages/cost'

function row(workload: string, more: Partial<Row> = {}): Row {
  return { cluster: 'c', namespace: 'shop', type: 'Resource', kind: 'Deployment', workload, state: 'ready', risk: 10, ...more }
}

const rows = index([
  row('b', { savingPerMonth: 5, labels: { team: 'red' } }), row('a', { savingPerMonth: -2, namespace: 'ml', risk: 90 }),
  row('c', { savingPerMonth: null, state: 'learning' }), row('d', { savingPerMonth: 50, labels: { team: 'red', tier: 'x' } }), row('e', { savingPerMonth: NaN }),
])
const order = (by: string, down: boolean) => sortRows(rows, by, down).map(r => r.row.workload).join('')

test('unknown savings are last in both directions', () => {
  assert.equal(order('saving', true), 'dbace')
  assert.equal(order('saving', false), 'abdce')
  assert.equal(order('risk', true), 'abcde')
  assert.equal(order('workload', false), 'abcde')
  assert.equal(order('no such column', true), 'dbace', 'a column of an old link sorts by saving')
})

test('filters are combined; words match anywhere', () => {
  const of = (f: Partial<typeof noFilter>) => filterRows(rows, { ...noFilter, ...f }).map(r => r.row.workload).join('')
  assert.equal(of({}), 'bacde')
  assert.equal(of({ text: 'SHOP team=red' }), 'bd')
  assert.equal(of({ text: 'shop red x' }), 'd')
  assert.equal(of({ label: 'team=red', namespace: 'shop' }), 'bd')
  assert.equal(of({ label: 'team' }), '', 'a label is compared as a whole')
  assert.equal(of({ state: 'learning' }), 'c')
  assert.equal(of({ namespace: 'other' }), '')
})

test('sums leave unknown savings out and count them', () => {
  assert.deepEqual(sumSavings(rows), { saving: 55, cost: 2, unknown: 2 })
  assert.deepEqual(facet(rows, r => r.namespace), [{ value: 'ml', n: 1 }, { value: 'shop', n: 4 }])
  assert.deepEqual(labelFacet(rows), [{ value: 'team=red', n: 2 }, { value: 'tier=x', n: 1 }])
})

function node(more: Partial<Node> = {}): Node {
  return { name: 'n', ready: true, cpuMilli: 4000, memoryBytes: 16, cpuRequestedMilli: 1000, memoryRequestedBytes: 4, pods: 1, pricePerMonth: 10, ...more }
}

test('packing is a bound by both resources', () => {
  assert.equal(packNodes([]), undefined)
  assert.deepEqual(packNodes([node(), node(), node(), node()]), { nodes: 1, free: 3, price: 30 })
  assert.deepEqual(packNodes([node({ memoryRequestedBytes: 16 }), node({ memoryRequestedBytes: 12 }), node(), node()])?.nodes, 3)
  assert.equal(packNodes([node({ ready: false })]), undefined)
  assert.equal(packNodes([node(), node({ pricePerMonth: null })])?.price, null, 'one unknown price makes the sum unknown')
  assert.equal(packNodes([node({ cpuRequestedMilli: 0, memoryRequestedBytes: 0 })])?.nodes, 1)
})

test('a node without a load has no color, one above its water mark a warm one', () => {
  assert.equal(heatClass(null, 0.65), '')
  assert.equal(heatClass(0, 0.65), 'h0')
  assert.equal(heatClass(0.6, 0.65), 'h3')
  assert.equal(heatClass(0.65, 0.65), 'h4')
  assert.equal(heatClass(0.99, 0.65), 'h5')
  assert.equal(shareOf(node(), 'cpuRequest', ''), 0.25)
  assert.equal(shareOf(node({ cpuMilli: 0 }), 'cpuRequest', ''), null)
  assert.equal(shareOf(node({ loads: { x: NaN } }), 'cpu', 'x'), null)
})

test('CSV quotes, and texts that a spreadsheet would run are harmless', () => {
  const text = costCSV({ asOf: 0, source: '', currency: 'EUR', by: 'label', withUsage: true, rows: [
    { name: '=cmd()', pods: 1, requestPerMonth: 1.5, usagePerMonth: null, maxPerMonth: 2 }, { name: 'a,"b"', pods: 2, requestPerMonth: 0, usagePerMonth: 3, maxPerMonth: 3 },
  ] })
  assert.equal(text, "label,pods,request_per_month,usage_per_month,max_per_month,currency\n'=cmd(),1,1.5,,2,EUR\n\"a,\"\"b\"\"\",2,0,3,3,EUR\n")
})
