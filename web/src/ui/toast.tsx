// Short messages about what an action did. They stay long enough to be read and are announced to screen readers.
import { useEffect, useState } from 'preact/hooks'
import { t } from '../i18n'

interface Message { id: number; text: string; tone: 'good' | 'bad' }
let next = 1
let push: (m: Message) => void = () => undefined

export function toast(text: string, tone: 'good' | 'bad' = 'good'): void {
  push({ id: next++, text, tone })
}

export function Toasts() {
  const [list, set] = useState<Message[]>([])
  useEffect(() => {
    push = m => {
      set(l => [...l.slice(-2), m])
      window.setTimeout(() => set(l => l.filter(o => o.id !== m.id)), m.tone === 'bad' ? 12000 : 6000)
    }
    return () => { push = () => undefined }
  }, [])
  return (
    <div class="toasts" role="status" aria-live="polite">
      {list.map(m => (
        <div class={'notice ' + m.tone} key={m.id}>
          <span>{m.text}</span>
          <button type="button" class="button small plain" onClick={() => set(l => l.filter(o => o.id !== m.id))}>{t('action.close')}</button>
        </div>
      ))}
    </div>
  )
}
