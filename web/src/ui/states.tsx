// What a page shows instead of data: loading, empty, learning, forbidden, error, expired, offline; and when data is old.
import type { ComponentChildren } from 'preact'
import type { Failure } from '../lib/http'
import type { Loaded } from '../lib/use'
import { age } from '../lib/format'
import { t } from '../i18n'
import { Icon, type IconName } from './icons'

export function Loading({ label = t('state.loading') }: { label?: string }) {
  return <div class="loading" role="status"><span>{label}</span><i /><i /><i /></div>
}

export function State({ icon, title, children }: { icon: IconName; title: string; children?: ComponentChildren }) {
  return (
    <div class="state">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children}
    </div>
  )
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <State icon="empty" title={title}>{children}</State>
}

export function Learning({ children }: { children?: ComponentChildren }) {
  return <State icon="learning" title={t('state.learning')}>{children ?? <p>{t('state.learningHint')}</p>}</State>
}

export function Failed({ failure, retry }: { failure: Failure; retry?: () => void }) {
  const next = failure.next && <p class="muted">{failure.next}</p>
  const again = retry && <button type="button" class="button" onClick={retry}>{t('action.retry')}</button>
  switch (failure.kind) {
    case 'forbidden':
      return (
        <State icon="lock" title={t('state.forbidden')}>
          <p>{failure.message}</p>
          {failure.right && <p>{t('state.right')} <code>{failure.right}</code></p>}
          {next || <p class="muted">{t('state.forbiddenHint')}</p>}
        </State>
      )
    case 'offline':
      return <State icon="offline" title={t('state.offline')}><p>{t('state.offlineHint')}</p>{again}</State>
    case 'expired':
      return <State icon="clock" title={t('state.expired')}><p>{t('state.expiredHint')}</p></State>
    case 'missing':
      return <Empty title={t('state.missing')}><p>{failure.message}</p>{next}</Empty>
    case 'unavailable':
      return <State icon="warning" title={t('state.unavailable')}><p>{failure.message}</p>{next}{again}</State>
    default:
      return <State icon="warning" title={t('state.failed')}><p>{failure.message}</p>{next}{again}</State>
  }
}

/** Shows the data, keeping the last answer with a notice when a refresh fails. */
export function Data<T>({ of, children }: { of: Loaded<T>; children: (data: T) => ComponentChildren }) {
  if (of.data === undefined) return of.failure ? <Failed failure={of.failure} retry={of.reload} /> : <Loading />
  return (
    <>
      {of.failure && <Stale failure={of.failure} at={of.at} retry={of.reload} />}
      {children(of.data)}
    </>
  )
}

export function Stale({ failure, at, retry }: { failure: Failure; at: number; retry: () => void }) {
  return (
    <div class="notice warn" role="status">
      <span>{t('state.stale', { age: age(at / 1000) })} {failure.message}</span>
      <button type="button" class="button small" onClick={retry}>{t('action.retry')}</button>
    </div>
  )
}
