// A table of any length that draws only the rows in view. Rows have one height, so that a position is a multiplication.
import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { t } from '../i18n'

export interface Column<R> {
  id: string
  label: string
  width: string
  number?: boolean
  sortable?: boolean
  /** Left out where the table is narrow. */
  wide?: boolean
  cell: (r: R) => ComponentChildren
  title?: (r: R) => string
}

export interface Order { by: string; down: boolean }

export interface GridProps<R> {
  label: string
  rows: R[]
  columns: Column<R>[]
  order: Order
  onOrder: (o: Order) => void
  keyOf: (r: R) => string
  nameOf: (r: R) => string
  onOpen: (r: R) => void
  selected: ReadonlySet<string>
  onSelect: (keys: string[], on: boolean) => void
  minWidth?: string
}

/** Returns the first row and the number of rows to draw, with some rows beyond the edges. */
export function windowOf(scrollTop: number, height: number, rowHeight: number, total: number, beyond = 8): { first: number; count: number } {
  const first = Math.max(0, Math.min(total, Math.floor(scrollTop / rowHeight)) - beyond)
  return { first, count: Math.min(total - first, Math.ceil(height / rowHeight) + 2 * beyond) }
}

const narrowWidth = 700

export function Grid<R>({ label, rows, columns: all, order, onOrder, keyOf, nameOf, onOpen, selected, onSelect, minWidth }: GridProps<R>) {
  const scroller = useRef<HTMLDivElement>(null)
  const [view, setView] = useState({ top: 0, height: 800, row: 34, head: 32, narrow: false })
  const focus = useRef(0)
  const anchor = useRef(0)

  useLayoutEffect(() => {
    const e = scroller.current
    if (!e) return
    const measure = () => {
      const size = parseFloat(getComputedStyle(document.documentElement).fontSize)
      e.style.setProperty('--grid-top', Math.round(e.getBoundingClientRect().top + window.scrollY + 40) + 'px')
      setView(v => ({ ...v, height: e.clientHeight, narrow: e.clientWidth < narrowWidth, row: size * 2.6, head: size * 2.4 }))
    }
    measure()
    const observer = new ResizeObserver(measure)
    observer.observe(e)
    return () => observer.disconnect()
  }, [])

  const columns = view.narrow ? all.filter(c => !c.wide) : all
  const { first, count } = windowOf(view.top, view.height, view.row, rows.length)
  const shown = rows.slice(first, first + count)
  const allOn = rows.length > 0 && rows.length === selected.size && rows.every(r => selected.has(keyOf(r)))
  const template = '1.6rem ' + columns.map(c => c.width).join(' ')

  const focusRow = (index: number) => {
    const e = scroller.current
    if (!e) return
    const i = Math.max(0, Math.min(rows.length - 1, index))
    focus.current = i
    const top = i * view.row
    if (top < e.scrollTop) e.scrollTop = top
    else if (top + view.row + view.head > e.scrollTop + e.clientHeight) e.scrollTop = top + view.row + view.head - e.clientHeight
    setView(v => ({ ...v, top: e.scrollTop }))
    requestAnimationFrame(() => e.querySelector<HTMLElement>(`[data-index="${i}"]`)?.focus({ preventScroll: true }))
  }
  const onKey = (e: KeyboardEvent) => {
    const target = e.target as HTMLElement
    if (target.dataset.index === undefined) return
    const i = Number(target.dataset.index)
    const page = Math.max(1, Math.floor(view.height / view.row) - 2)
    const moves: Record<string, number> = { ArrowDown: i + 1, ArrowUp: i - 1, PageDown: i + page, PageUp: i - page, Home: 0, End: rows.length - 1 }
    const to = moves[e.key]
    const row = rows[i]
    if (to !== undefined) { e.preventDefault(); focusRow(to) }
    else if (e.key === 'Enter' && row) onOpen(row)
    else if (e.key === ' ' && row) { e.preventDefault(); toggle(i, e.shiftKey) }
  }
  const toggle = (i: number, range: boolean) => {
    const key = keyOf(rows[i]!)
    const on = !selected.has(key)
    const from = range ? Math.min(anchor.current, i) : i
    const to = range ? Math.max(anchor.current, i) : i
    anchor.current = i
    onSelect(rows.slice(from, to + 1).map(keyOf), on)
  }
  return (
    <div class="grid" role="table" aria-label={label} aria-rowcount={rows.length + 1} ref={scroller} tabIndex={-1}
      onScroll={e => setView(v => ({ ...v, top: (e.currentTarget as HTMLElement).scrollTop }))} onKeyDown={onKey}
      style={{ '--grid-columns': template, '--grid-min': view.narrow ? '0' : minWidth ?? '64rem' }}>
      <div role="rowgroup">
        <div class="grid-row grid-head" role="row" aria-rowindex={1}>
          <span role="columnheader">
            <input type="checkbox" aria-label={t('grid.selectAll')} checked={allOn} onChange={() => onSelect(rows.map(keyOf), !allOn)} />
          </span>
          {columns.map(c => (
            <span role="columnheader" key={c.id} class={c.number ? 'number' : ''} aria-sort={order.by === c.id ? (order.down ? 'descending' : 'ascending') : undefined}>
              {c.sortable === false ? c.label : (
                <button type="button" class="sort" onClick={() => onOrder({ by: c.id, down: order.by === c.id ? !order.down : !!c.number })}>{c.label}</button>
              )}
            </span>
          ))}
        </div>
      </div>
      <div class="grid-body" role="rowgroup" style={{ height: rows.length * view.row + 'px' }}>
        <div class="grid-window" role="presentation" style={{ transform: `translateY(${first * view.row}px)` }}>
          {shown.map((r, n) => {
            const i = first + n
            const key = keyOf(r)
            const on = selected.has(key)
            return (
              <div class={on ? 'grid-row on' : 'grid-row'} role="row" key={key} data-index={i} aria-rowindex={i + 2}
                tabIndex={i === Math.max(first, Math.min(focus.current, first + shown.length - 1)) ? 0 : -1}
                onFocus={() => { focus.current = i }}
                onClick={e => { if (!(e.target as HTMLElement).closest('a, input, button')) onOpen(r) }}>
                <span role="cell"><input type="checkbox" tabIndex={-1} aria-label={t('grid.select', { name: nameOf(r) })} checked={on}
                  onClick={e => { e.preventDefault(); toggle(i, e.shiftKey) }} /></span>
                {columns.map(c => <span role="cell" key={c.id} class={c.number ? 'number' : ''} title={c.title?.(r)}>{c.cell(r)}</span>)}
              </div>
            )
          })}
        </div>
      </div>
    </div>
  )
}
