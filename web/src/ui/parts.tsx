// Small parts that pages share.
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { t } from '../i18n'
import { iso, time } from '../lib/format'
import { navigate } from '../lib/router'
import { Icon } from './icons'

/** A link within the dashboard; opens a new tab as any link does with a modifier key. */
export function Link({ to, children, ...rest }: { to: string; children: ComponentChildren; class?: string; 'aria-current'?: 'page' | undefined; title?: string }) {
  const open = (e: MouseEvent) => {
    if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return
    e.preventDefault()
    navigate(to)
  }
  return <a href={to} onClick={open} {...rest}>{children}</a>
}

export function Head({ title, about, children }: { title: ComponentChildren; about?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <header class="head">
      <div>
        <h1>{title}</h1>
        {about && <p class="provenance">{about}</p>}
      </div>
      {children && <div class="row">{children}</div>}
    </header>
  )
}

export function Card({ title, note, actions, flush, children }: {
  title?: ComponentChildren; note?: ComponentChildren; actions?: ComponentChildren; flush?: boolean; children: ComponentChildren
}) {
  return (
    <section class={flush ? 'card flush' : 'card'}>
      {(title || actions) && <div class="spread">{title && <h2>{title}</h2>}{actions && <div class="row">{actions}</div>}</div>}
      {note && <p class="card-note">{note}</p>}
      {children}
    </section>
  )
}

export function Figures({ small, children }: { small?: boolean; children: ComponentChildren }) {
  return <dl class={small ? 'figures small' : 'figures'}>{children}</dl>
}

export function Figure({ label, value, unit, note, lead, tone }: {
  label: string; value: ComponentChildren; unit?: string; note?: ComponentChildren; lead?: boolean; tone?: string
}) {
  return (
    <div class={lead ? 'figure lead' : 'figure'}>
      <dt>{label}</dt>
      <dd><span class={tone}>{value}</span>{unit && <small> {unit}</small>}{note && <div class="note">{note}</div>}</dd>
    </div>
  )
}

export function Time({ at }: { at: number | string | null | undefined }) {
  return <time dateTime={iso(at)}>{time(at)}</time>
}

export function Tag({ tone = '', children, title }: { tone?: string; children: ComponentChildren; title?: string }) {
  return <span class={'tag ' + tone} title={title}>{children}</span>
}

export function Segments<T extends string>({ label, value, options, onChange }: {
  label: string; value: T; options: { value: T; label: string }[]; onChange: (v: T) => void
}) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map(o => (
        <button type="button" key={o.value} aria-pressed={o.value === value} onClick={() => onChange(o.value)}>{o.label}</button>
      ))}
    </div>
  )
}

export function Select({ label, value, options, onChange }: {
  label: string; value: string; options: { value: string; label: string }[]; onChange: (v: string) => void
}) {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={e => onChange(e.currentTarget.value)}>
        {options.map(o => <option key={o.value} value={o.value}>{o.label}</option>)}
      </select>
    </div>
  )
}

export function TextField({ label, value, onInput, hint, placeholder, search }: {
  label: string; value: string; onInput: (v: string) => void; hint?: string; placeholder?: string; search?: boolean
}) {
  const id = useId()
  return (
    <div class={search ? 'field search' : 'field'}>
      <label for={id}>{label}</label>
      <input id={id} type="text" value={value} placeholder={placeholder} autocomplete="off" spellcheck={false}
        aria-describedby={hint ? id + '-hint' : undefined} onInput={e => onInput(e.currentTarget.value)} />
      {hint && <span class="hint muted" id={id + '-hint'}>{hint}</span>}
    </div>
  )
}

export function Copy({ text, label }: { text: string; label?: string }) {
  const [done, set] = useState<'' | 'done' | 'failed'>('')
  useEffect(() => {
    if (!done) return
    const timer = window.setTimeout(() => set(''), 2000)
    return () => window.clearTimeout(timer)
  }, [done])
  const copy = () => void navigator.clipboard?.writeText(text).then(() => set('done'), () => set('failed'))
  return (
    <button type="button" class="button small" onClick={copy}>
      <Icon name="copy" /><span aria-live="polite">{done === 'done' ? t('action.copied') : done === 'failed' ? t('action.copyFailed') : label ?? t('action.copy')}</span>
    </button>
  )
}

/** Code to copy, such as PromQL or a patch. */
export function Code({ text, label }: { text: string; label?: string }) {
  return <div class="promql"><pre tabIndex={0} aria-label={label}>{text}</pre><Copy text={text} /></div>
}

export function Modal({ title, onClose, children, foot }: { title: string; onClose: () => void; children: ComponentChildren; foot?: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const d = ref.current
    if (d && !d.open) d.showModal()
  }, [])
  return (
    <dialog ref={ref} aria-labelledby={id} onClose={onClose} onClick={e => { if (e.target === ref.current) ref.current?.close() }}>
      <div class="dialog">
        <div class="spread">
          <h2 id={id}>{title}</h2>
          <button type="button" class="button small plain" onClick={() => ref.current?.close()}>{t('action.close')}</button>
        </div>
        {children}
        {foot && <div class="dialog-foot">{foot}</div>}
      </div>
    </dialog>
  )
}

/** A ratio as a bar. Widths are set as properties, which the CSP allows, and not as an attribute. */
export function Bar({ parts, label }: { parts: { share: number; tone?: string }[]; label: string }) {
  return (
    <span class="bar" role="img" aria-label={label}>
      {parts.map((p, i) => <span key={i} class={p.tone} style={{ width: `${Math.max(0, Math.min(1, p.share || 0)) * 100}%` }} />)}
    </span>
  )
}
