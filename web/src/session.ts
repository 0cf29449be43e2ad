import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import { address, list, type Cluster, type Session } from './api'
import { useLocation } from './lib/router'

export const SessionContext = createContext<Session | undefined>(undefined)

export function useSession(): Session {
  const s = useContext(SessionContext)
  if (!s) throw new Error('no session')
  return s
}

/** The cluster of ?cluster=, or the first of the session, and addresses that name it. */
export function useCluster(named = ''): { cluster: Cluster | undefined; name: string; address: (path: string, parameters?: Record<string, string | number | null | undefined>) => string } {
  const session = useSession()
  const query = useLocation().query.get('cluster') ?? ''
  const clusters = list(session.clusters)
  const cluster = clusters.find(c => c.name === (named || query)) ?? (named ? undefined : clusters[0])
  const name = cluster?.name ?? named
  return { cluster, name, address: (path, parameters = {}) => address(path, { cluster: name, ...parameters }) }
}
