// Time series on a canvas, with a legend that switches lines, marks, zoom by dragging, and the same numbers as a table.
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { language, t } from '../i18n'
import { quantity, time, unitOf } from '../lib/format'
import { onTheme } from '../lib/theme'
import { useSize } from '../lib/use'
import { Code } from './parts'
import { Scroll } from './scroll'

export type Tone = 'use' | 'request' | 'limit' | 'recommended' | 'forecast' | 'warn' | 'muted' | 'accent'

export interface Line {
  id: string
  label: string
  tone: Tone
  values: (number | null)[]
  dashed?: boolean
  stepped?: boolean
  /** A thin line, such as the bound of a band. */
  thin?: boolean
  /** Fills the area to the line with this id. */
  bandTo?: string
  hidden?: boolean
  /** Follows the line with this id, and has no entry of its own in the legend. */
  follows?: string
  promql?: string
}

export interface Mark { t: number; label: string; tone: Tone; kind: string }

export interface ChartProps {
  label: string
  /** cpu, memory, or the name of a unit. */
  unit: string
  times: number[]
  lines: Line[]
  marks?: Mark[]
  height?: number
  range?: [number, number] | null
  onRange?: (r: [number, number] | null) => void
  format?: (v: number | null | undefined) => string
}

const emptyMarks: Mark[] = []

/** Resolves the color of a class, because a canvas does not read custom properties. */
function colorOf(host: HTMLElement, className: string): string {
  const probe = document.createElement('span')
  probe.className = className
  host.appendChild(probe)
  const color = getComputedStyle(probe).color
  probe.remove()
  return color
}

function faded(color: string, alpha: number): string {
  return color.replace(/^rgb\(([^)]+)\)$/, (_, rgb: string) => `rgba(${rgb}, ${alpha})`)
}

export function Chart(props: ChartProps) {
  const { label, unit, times, lines, marks = emptyMarks, height = 280, range, onRange } = props
  const format = props.format ?? ((v: number | null | undefined) => quantity(unit, v))
  const [host, size] = useSize()
  const element = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const [off, setOff] = useState<ReadonlySet<string>>(() => new Set(lines.filter(l => l.hidden).map(l => l.id)))
  const [theme, setTheme] = useState(0)
  const [at, setAt] = useState<number | null>(null)
  const callback = useRef(onRange)
  callback.current = onRange
  useEffect(() => onTheme(() => setTheme(n => n + 1)), [])

  const shape = lines.map(l => l.id + l.tone + l.label).join('|')
  const data = useMemo(() => [times, ...lines.map(l => l.values)] as uPlot.AlignedData, [times, lines])

  useLayoutEffect(() => {
    const target = element.current
    if (!target || size.width < 40) return
    const u = new uPlot(options(target, { unit, lines, marks, height, width: size.width, off, range, format },
      i => setAt(i), r => callback.current?.(r)), data, target)
    plot.current = u
    return () => { u.destroy(); plot.current = null }
    // Size, data and range are set on the plot that exists.
    // eslint-disable-next-line
  }, [shape, theme, unit, height, marks, size.width >= 40, language()])
  useEffect(() => { if (size.width >= 40) plot.current?.setSize({ width: size.width, height }) }, [size.width, height])
  useEffect(() => { plot.current?.setData(data, false); applyRange(plot.current, times, range) }, [data, range?.[0], range?.[1]])

  const toggle = (id: string) => {
    const next = new Set(off)
    if (!next.delete(id)) next.add(id)
    setOff(next)
    lines.forEach((l, i) => { if (l.id === id || l.follows === id) plot.current?.setSeries(i + 1, { show: !next.has(id) }) })
  }
  const shown = at ?? times.length - 1
  return (
    <figure class="chart">
      <div class="legend">
        {lines.filter(l => !l.follows).map(l => (
          <button type="button" key={l.id} aria-pressed={!off.has(l.id)} onClick={() => toggle(l.id)}>
            <span class={`swatch c-${l.tone}${l.dashed ? ' dashed' : ''}${l.bandTo ? ' band' : ''}`} />
            {l.label}{at !== null && <span class="value">{format(l.values[shown])}</span>}
          </button>
        ))}
        {range && onRange && <button type="button" class="button small" onClick={() => onRange(null)}>{t('chart.resetZoom')}</button>}
        {at !== null && <span class="muted">{time(times[shown])}</span>}
      </div>
      <div class="plot" ref={host} role="img" aria-label={t('chart.describe', { label, from: time(times[0]), to: time(times.at(-1)), lines: lines.map(l => l.label).join(', ') })}>
        <div ref={element} aria-hidden="true" />
      </div>
      {marks.length > 0 && <MarkList marks={marks} />}
      <div class="row">
        <details>
          <summary>{t('chart.table')}</summary>
          <ChartTable {...props} format={format} />
        </details>
        {lines.some(l => l.promql) && (
          <details>
            <summary>{t('chart.promql')}</summary>
            <div class="stack">{lines.filter(l => l.promql).map(l => <div key={l.id}><div class="muted">{l.label}</div><Code text={l.promql!} label={l.label} /></div>)}</div>
          </details>
        )}
      </div>
    </figure>
  )
}

function MarkList({ marks }: { marks: Mark[] }) {
  const kinds = new Map<string, { tone: Tone; n: number }>()
  for (const m of marks) kinds.set(m.kind, { tone: m.tone, n: (kinds.get(m.kind)?.n ?? 0) + 1 })
  return (
    <div class="marks">
      {[...kinds].map(([kind, { tone, n }]) => <span key={kind}><span class={'c-' + tone} aria-hidden="true">▲</span> {kind} ({n})</span>)}
    </div>
  )
}

const tableRows = 120

/** Every nth point, and all marks: a table to read and to copy, not the raw samples. */
function ChartTable({ times, lines, marks = emptyMarks, unit, range, label, format }: ChartProps & { format: (v: number | null | undefined) => string }) {
  const indices = thinned(times, range ?? null, tableRows)
  const suffix = unitOf(unit)
  return (
    <Scroll>
      <table class="table">
        <caption class="hidden">{label}</caption>
        <thead><tr><th scope="col">{t('chart.time')}</th>{lines.map(l => <th scope="col" class="number" key={l.id}>{l.label}{suffix && ` (${suffix})`}</th>)}<th scope="col">{t('chart.events')}</th></tr></thead>
        <tbody>
          {indices.map((i, n) => (
            <tr key={i}>
              <th scope="row" class="nowrap">{time(times[i])}</th>
              {lines.map(l => <td class="number" key={l.id}>{format(l.values[i])}</td>)}
              <td>{marks.filter(m => m.t >= times[i]! && m.t < (times[indices[n + 1] ?? -1] ?? Infinity)).map(m => m.label).join('; ')}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  )
}

/** Returns at most n indices, evenly spaced, of the times within a range. */
export function thinned(times: number[], range: [number, number] | null, n: number): number[] {
  const inside: number[] = []
  times.forEach((at, i) => { if (!range || (at >= range[0] && at <= range[1])) inside.push(i) })
  const step = Math.max(1, Math.ceil(inside.length / n))
  return inside.filter((_, i) => i % step === 0)
}

function applyRange(u: uPlot | null, times: number[], range: [number, number] | null | undefined): void {
  if (!u || times.length === 0) return
  u.setScale('x', { min: range?.[0] ?? times[0]!, max: range?.[1] ?? times.at(-1)! })
}

interface Settings {
  unit: string; lines: Line[]; marks: Mark[]; height: number; width: number; off: ReadonlySet<string>
  range: [number, number] | null | undefined; format: (v: number | null | undefined) => string
}

function options(host: HTMLElement, s: Settings, onCursor: (i: number | null) => void, onRange: (r: [number, number]) => void): uPlot.Options {
  const color = (tone: Tone) => colorOf(host, 'c-' + tone)
  const muted = color('muted')
  const grid = faded(muted, 0.16)
  const font = `12px ${getComputedStyle(document.body).fontFamily}`
  const axis = { stroke: muted, font, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 5 } }
  const bands: uPlot.Band[] = []
  s.lines.forEach((l, i) => {
    const to = s.lines.findIndex(o => o.id === l.bandTo)
    if (to >= 0) bands.push({ series: [i + 1, to + 1], fill: faded(color(l.tone), 0.16) })
  })
  const step = uPlot.paths.stepped?.({ align: 1 })
  return {
    width: s.width, height: s.height,
    legend: { show: false },
    padding: [12, 8, 0, 0],
    cursor: { points: { size: 6 }, drag: { x: true, y: false, setScale: false }, y: false },
    scales: { x: { time: true }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.08 : 1] } },
    axes: [
      { ...axis, space: 70, size: 34, values: (_u, splits, _i, _s, incr) => splits.map(v => tick(v, incr)) },
      { ...axis, size: 62, values: (_u, splits) => splits.map(v => s.format(v)), ...(s.unit === 'memory' ? { incrs: memoryIncrements } : {}) },
    ],
    series: [{}, ...s.lines.map((l): uPlot.Series => ({
      label: l.label, stroke: color(l.tone), width: l.thin ? 0.6 : 1.6, show: !s.off.has(l.follows ?? l.id),
      points: { show: false }, spanGaps: false,
      ...(l.dashed ? { dash: [6, 4] } : {}), ...(l.stepped && step ? { paths: step } : {}),
    }))],
    bands,
    hooks: {
      setCursor: [u => onCursor(u.cursor.idx ?? null)],
      setSelect: [u => {
        if (u.select.width < 4) return
        const from = u.posToVal(u.select.left, 'x')
        const to = u.posToVal(u.select.left + u.select.width, 'x')
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
        onRange([Math.floor(from), Math.ceil(to)])
      }],
      draw: [u => drawMarks(u, s.marks, color)],
    },
  }
}

const memoryIncrements = Array.from({ length: 44 }, (_, i) => 2 ** i)

function tick(seconds: number, increment: number): string {
  const date = new Date(seconds * 1000)
  const midnight = date.getHours() === 0 && date.getMinutes() === 0
  const locale = language() === 'zh' ? 'zh-CN' : 'en-GB'
  return increment >= 86400 || midnight
    ? date.toLocaleDateString(locale, { day: 'numeric', month: 'short' })
    : date.toLocaleTimeString(locale, { hour: '2-digit', minute: '2-digit' })
}

/** Draws a line and a triangle at the foot for each mark; the kind is told apart by color and by the list below the chart. */
function drawMarks(u: uPlot, marks: Mark[], color: (tone: Tone) => string): void {
  const { ctx, bbox } = u
  const ratio = window.devicePixelRatio || 1
  ctx.save()
  for (const m of marks) {
    const x = u.valToPos(m.t, 'x', true)
    if (x < bbox.left || x > bbox.left + bbox.width) continue
    ctx.strokeStyle = ctx.fillStyle = color(m.tone)
    ctx.lineWidth = ratio
    ctx.setLineDash([2 * ratio, 3 * ratio])
    ctx.beginPath()
    ctx.moveTo(x, bbox.top)
    ctx.lineTo(x, bbox.top + bbox.height)
    ctx.stroke()
    const foot = bbox.top + bbox.height
    ctx.beginPath()
    ctx.moveTo(x, foot - 8 * ratio)
    ctx.lineTo(x - 5 * ratio, foot)
    ctx.lineTo(x + 5 * ratio, foot)
    ctx.fill()
  }
  ctx.restore()
}
