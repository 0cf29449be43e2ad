// The frame of the dashboard: session, navigation, and the page that the path selects.
import type { ComponentChildren } from 'preact'
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { language, t, useTexts, type Key } from './i18n'
import { onConnection, request, setCSRF, Failure } from './lib/http'
import { setQuery, useLocation, type Location } from './lib/router'
import { applyTheme, storedTheme, write, type Theme } from './lib/theme'
import { forget } from './lib/use'
import { list, paths, type Session } from './api'
import { SessionContext, useCluster, useSession } from './session'
import { Icon, type IconName } from './ui/icons'
import { Head, Link, Segments, Select } from './ui/parts'
import { Failed, Loading, State } from './ui/states'
import { Toasts } from './ui/toast'
import { Login } from './pages/login'
import { pages } from './pages'

interface Entry { id: string; icon: IconName; label: Key }
const groups: { label: Key; entries: Entry[] }[] = [
  { label: 'nav.savings', entries: [
    { id: 'overview', icon: 'overview', label: 'nav.overview' },
    { id: 'worklist', icon: 'worklist', label: 'nav.worklist' },
    { id: 'cost', icon: 'cost', label: 'nav.cost' },
  ] },
  { label: 'nav.capacity', entries: [
    { id: 'autoscaling', icon: 'autoscaling', label: 'nav.autoscaling' },
    { id: 'nodes', icon: 'nodes', label: 'nav.nodes' },
  ] },
  { label: 'nav.setup', entries: [
    { id: 'rules', icon: 'rules', label: 'nav.rules' },
    { id: 'health', icon: 'health', label: 'nav.health' },
  ] },
]

export function App() {
  const location = useLocation()
  const [session, setSession] = useState<Session>()
  const [failure, setFailure] = useState<Failure>()
  const [expired, setExpired] = useState(false)
  const [offline, setOffline] = useState(false)
  const [, redraw] = useState(0)

  const load = useCallback(() => {
    setFailure(undefined)
    return request<Session>(paths.session, { quiet: true }).then(s => {
      setCSRF(s.csrfToken ?? '')
      setSession(s)
      if (s.authenticated) setExpired(false)
    }, (e: Failure) => setFailure(e))
  }, [])
  useEffect(() => { void load() }, [load])
  useEffect(() => onConnection(e => {
    if (e === 'expired') setExpired(true)
    else setOffline(e === 'offline')
  }), [])
  useEffect(() => {
    if (!offline) return
    const probe = window.setInterval(() => void request(paths.session, { quiet: true }).catch(() => undefined), 5000)
    return () => window.clearInterval(probe)
  }, [offline])

  // A server that cannot answer for now is asked again, such as while the API server starts.
  useEffect(() => {
    if (!failure || session) return
    const timer = window.setTimeout(() => void load(), 3000)
    return () => window.clearTimeout(timer)
  }, [failure, session])

  if (failure && !session) return <main class="login"><div class="card"><Failed failure={failure} retry={() => void load()} /></div></main>
  if (!session) return <main><Loading /></main>
  if (!session.authenticated || expired) return <Login session={session} expired={expired} onDone={() => { forget(); void load() }} />

  const logout = () => void request(paths.logout, { method: 'POST' }).catch(() => undefined).then(() => { forget(); void load() })
  const chooseLanguage = (l: 'en' | 'zh') => void useTexts(l).then(() => { write('crane.language', l); redraw(n => n + 1) })
  return (
    <SessionContext.Provider value={session}>
      <a class="skip" href="#main" onClick={e => { e.preventDefault(); document.getElementById('main')?.focus() }}>{t('nav.skip')}</a>
      <div class="frame">
        <Side location={location} session={session} onLogout={logout} onLanguage={chooseLanguage} />
        <Main location={location} key={language()}>
          {offline && <div class="notice bad" role="alert"><span>{t('state.offline')}. {t('state.offlineHint')}</span></div>}
        </Main>
      </div>
      <Toasts />
    </SessionContext.Provider>
  )
}

function Main({ location, children }: { location: Location; children: ComponentChildren }) {
  const page = location.path[0] ?? 'overview'
  const known = pages[page]
  const main = useRef<HTMLElement>(null)
  const first = useRef(true)
  const place = location.path.join('/')
  useEffect(() => {
    const name = known ? t(known.title) : t('page.missing')
    document.title = (page === 'workload' ? location.path.slice(-1)[0] + ' · ' : '') + name + ' · Crane'
    // Moves the focus to the new page, as a browser does after a load, so that screen readers start there.
    if (!first.current) main.current?.focus({ preventScroll: true })
    first.current = false
  }, [place])
  const Page = known?.component
  const served = list(useSession().pages).includes(page)
  return (
    <main id="main" tabIndex={-1} ref={main}>
      {children}
      {Page && !served ? <><Head title={t(known.title)} /><State icon="empty" title={t('page.notServed')}><p>{t('page.notServedHint')}</p></State></> : Page ? <Page key={page} path={location.path.slice(1)} query={location.query} /> : <State icon="empty" title={t('page.missing')}><Link to="/overview">{t('nav.overview')}</Link></State>}
    </main>
  )
}

function Side({ location, session, onLogout, onLanguage }: {
  location: Location; session: Session; onLogout: () => void; onLanguage: (l: 'en' | 'zh') => void
}) {
  const [open, setOpen] = useState(false)
  const [theme, setTheme] = useState<Theme>(storedTheme)
  const active = location.path[0] ?? 'overview'
  const current = active === 'workload' ? 'worklist' : active
  useEffect(() => setOpen(false), [location.path.join('/')])
  return (
    <header class={open ? 'side open' : 'side'}>
      <div class="side-top">
        <Link to="/overview" class="brand"><img src="/icon.svg" alt="" width={24} height={24} />Crane</Link>
        <button type="button" class="button plain menu-button" aria-expanded={open} onClick={() => setOpen(!open)}><Icon name="menu" />{t('nav.menu')}</button>
      </div>
      <nav class="nav" aria-label={t('nav.pages')}>
        {groups.map(g => ({ ...g, entries: g.entries.filter(e => list(session.pages).includes(e.id)) })).filter(g => g.entries.length > 0).map(g => (
          <div key={g.label}>
            <h2>{t(g.label)}</h2>
            {g.entries.map(e => <Link key={e.id} to={'/' + e.id + keepCluster(location)} aria-current={e.id === current ? 'page' : undefined}><Icon name={e.icon} />{t(e.label)}</Link>)}
          </div>
        ))}
      </nav>
      <div class="side-foot">
        <Clusters session={session} />
        <div class="row"><span title={session.user}>{session.user || t('nav.anonymous')}</span>
          {session.mode === 'cluster' && <button type="button" class="button small plain" onClick={onLogout}>{t('action.logout')}</button>}</div>
        <Segments label={t('nav.language')} value={language()} options={[{ value: 'en', label: 'English' }, { value: 'zh', label: '中文' }]} onChange={onLanguage} />
        <Segments label={t('nav.theme')} value={theme} onChange={v => { applyTheme(v); setTheme(v) }}
          options={[{ value: 'auto', label: t('theme.auto') }, { value: 'light', label: t('theme.light') }, { value: 'dark', label: t('theme.dark') }]} />
        <span>{session.version}</span>
      </div>
    </header>
  )
}

function keepCluster(l: Location): string {
  const cluster = l.query.get('cluster')
  return cluster ? '?cluster=' + encodeURIComponent(cluster) : ''
}

/** Selects the cluster of the pages that show one. */
function Clusters({ session }: { session: Session }) {
  const { name } = useCluster()
  const clusters = list(session.clusters)
  if (clusters.length < 2) return clusters[0] ? <span>{t('nav.cluster', { name: clusters[0].name })}</span> : null
  return <Select label={t('worklist.cluster')} value={name} options={clusters.map(c => ({ value: c.name, label: c.name }))} onChange={v => setQuery({ cluster: v }, false)} />
}
