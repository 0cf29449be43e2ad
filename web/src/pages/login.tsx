import { useState } from 'preact/hooks'
import { list, paths, type Session } from '../api'
import { t } from '../i18n'
import { Failure, request } from '../lib/http'

/** Asks for a bearer token of the cluster. The page behind it, with its filters, opens again after the login. */
export function Login({ session, expired, onDone }: { session: Session; expired: boolean; onDone: () => void }) {
  const [token, setToken] = useState('')
  const [problem, setProblem] = useState('')
  const [busy, setBusy] = useState(false)
  const submit = (e: Event) => {
    e.preventDefault()
    setBusy(true)
    setProblem('')
    request(paths.login, { method: 'POST', body: { token: token.trim() }, quiet: true }).then(onDone, (f: Failure) => {
      setProblem(f.kind === 'expired' ? t('login.refused') : f.message)
      setBusy(false)
    })
  }
  const withToken = list(session.loginMethods).includes('token')
  return (
    <main class="login">
      <form class="card" onSubmit={submit}>
        <div class="row"><img src="/icon.svg" alt="" width={32} height={32} /><h1>{t('login.title')}</h1></div>
        {expired && <p class="notice warn" role="status">{t('state.expired')}. {t('state.expiredHint')}</p>}
        {withToken ? (
          <>
            <div class="field">
              <label for="token">{t('login.token')}</label>
              <input id="token" type="password" autocomplete="off" required value={token} onInput={e => setToken(e.currentTarget.value)}
                aria-invalid={problem !== ''} aria-describedby="token-hint" />
              <span class="hint muted" id="token-hint">{t('login.hint')} <code>kubectl create token NAME -n NAMESPACE</code></span>
            </div>
            {problem && <p class="notice bad" role="alert">{problem}</p>}
            <button class="button primary" disabled={busy || token.trim() === ''}>{t('action.login')}</button>
          </>
        ) : <p>{t(list(session.loginMethods).includes('proxy') ? 'login.proxy' : 'login.local')}</p>}
      </form>
    </main>
  )
}
