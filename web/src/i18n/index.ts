// Texts of the dashboard. Each language is one file with the same keys; English is the reference.
import { en } from './en'

export type Key = keyof typeof en
export type Texts = Record<Key, string>
export type Language = 'en' | 'zh'

const loaded: Partial<Record<Language, Texts>> = { en }
let active: Language = 'en'

/** The language of Intl's formats. */
export function locale(): string {
  return active === 'zh' ? 'zh-CN' : 'en-GB'
}

export function language(): Language {
  return active
}

/** Chooses the language that the person has stored, or the browser's. */
export function preferred(stored: string | null, browser: readonly string[]): Language {
  if (stored === 'en' || stored === 'zh') return stored
  const first = browser.find(l => /^(en|zh)\b/i.test(l))
  return first && /^zh/i.test(first) ? 'zh' : 'en'
}

export async function useTexts(l: Language): Promise<void> {
  if (!loaded[l]) loaded.zh = (await import('./zh')).zh
  active = l
  if (typeof document !== 'undefined') document.documentElement.lang = l === 'zh' ? 'zh-CN' : 'en'
}

/** Returns the text of a key with its {parameters} replaced. */
export function t(key: Key, parameters: Record<string, string | number> = {}): string {
  const text = (loaded[active] ?? en)[key]
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => (name in parameters ? String(parameters[name]) : whole))
}

/** Returns the text of a key that the server sent, or the fallback for a value without a text of its own. */
export function tOr(key: string, fallback: string): string {
  return key in en ? t(key as Key) : fallback
}
