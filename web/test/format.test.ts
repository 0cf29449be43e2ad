import test from 'node:test'
import assert from 'node:assert/strict'
import { age, bytes, change, count, cpu, duration, missing, money, percent, quantity, signedPercent, toSeconds } from '../src/lib/format'
import { useTexts } from '../src/i18n'

test('CPU has the units of Kubernetes', () => {
  const cases: [number, string][] = [[0, '0'], [0.0004, '0.4m'], [0.001, '1m'], [0.25, '250m'], [0.9996, '1000m'], [1, '1'], [1.5, '1.5'], [12.34, '12.3'], [1234.5, '1,235'], [-0.25, '-250m']]
  for (const [v, want] of cases) assert.equal(cpu(v), want)
})

test('bytes have binary units', () => {
  const cases: [number, string][] = [[0, '0 B'], [1023, '1,023 B'], [1024, '1 KiB'], [1536 * 1024 * 1024, '1.5 GiB'], [-(1 << 20), '-1 MiB'], [2 ** 60, '1,024 PiB']]
  for (const [v, want] of cases) assert.equal(bytes(v), want)
})

test('unknown numbers are a dash and never zero', () => {
  for (const v of [null, undefined, NaN, Infinity, -Infinity]) {
    for (const f of [cpu, bytes, count, percent, duration, signedPercent]) assert.equal(f(v), missing, `${f.name}(${v})`)
    assert.equal(money(v, 'USD'), missing)
    assert.equal(quantity('memory', v), missing)
    assert.equal(change(v, 1), missing)
    assert.equal(change(1, v), missing)
  }
  assert.equal(change(0, 1), missing, 'a change from zero has no ratio')
})

test('changes have a sign', () => {
  assert.equal(change(1, 0.25), '−75 %')
  assert.equal(change(1, 2), '+100 %')
  assert.equal(change(1, 1.001), '0 %')
})

test('money has the currency, also one that is no ISO code', async () => {
  assert.equal(money(1234.56, 'USD'), '$1,235')
  assert.equal(money(12.345, 'EUR'), '€12.35')
  assert.equal(money(3, 'credits'), '3 credits')
  await useTexts('zh')
  assert.equal(money(1234.56, 'CNY'), '¥1,235')
  await useTexts('en')
})

test('durations have two units', () => {
  const cases: [number, string][] = [[0, '0s'], [59, '59s'], [60, '1m'], [3661, '1h 1m'], [86400 * 2 + 7200, '2d 2h'], [86400 + 1, '1d'], [-90, '−1m 30s']]
  for (const [v, want] of cases) assert.equal(duration(v), want)
})

test('times are read in both forms; the zero time of Go is unknown', () => {
  assert.equal(toSeconds(5), 5)
  assert.equal(toSeconds('1970-01-01T00:01:00Z'), 60)
  assert.ok(Number.isNaN(toSeconds('0001-01-01T00:00:00Z')))
  assert.ok(Number.isNaN(toSeconds('yesterday')))
  assert.equal(age(1000, 1000 + 3 * 86400 + 5), '3d')
  assert.equal(age(1000, 900), '0s')
  assert.equal(age(null), missing)
})
