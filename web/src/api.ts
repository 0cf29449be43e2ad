// The server's answers, see contract.ts, and the addresses that give them. Times are seconds since 1970; a number that is not known is absent.
import { PathAction, PathAutoscaling, PathCost, PathExport, PathForecast, PathHealth, PathLogin, PathLogout, PathNodes, PathOverview, PathPlacement, PathRules,
  PathSeries, PathSession, PathWhatIf, PathWorklist, PathWorkload, Prefix } from './contract'
import type { Item, Row } from './contract'
import { path } from './lib/router'

export type * from './contract'

export const paths = {
  session: Prefix + PathSession, login: Prefix + PathLogin, logout: Prefix + PathLogout, overview: Prefix + PathOverview,
  worklist: Prefix + PathWorklist, workload: Prefix + PathWorkload, series: Prefix + PathSeries, whatIf: Prefix + PathWhatIf,
  autoscaling: Prefix + PathAutoscaling, forecast: Prefix + PathForecast, nodes: Prefix + PathNodes, placement: Prefix + PathPlacement, cost: Prefix + PathCost,
  rules: Prefix + PathRules, health: Prefix + PathHealth, export: Prefix + PathExport, action: Prefix + PathAction,
}

/** An address with parameters; those that are empty are left out. */
export function address(of: string, parameters: Record<string, string | number | null | undefined>): string {
  const query = new URLSearchParams()
  for (const [key, value] of Object.entries(parameters)) if (value !== '' && value !== null && value !== undefined) query.set(key, String(value))
  const text = query.toString()
  return text ? of + '?' + text : of
}

export interface Place { cluster: string; namespace?: string; kind: string; name: string }

/** The page of a workload. A hyphen stands for an empty part of the path. */
export function workloadPath(w: Place): string {
  return path('workload', w.cluster || '-', w.namespace || '-', w.kind, w.name)
}

export function placeOf(r: Row): Place {
  return { cluster: r.cluster, namespace: r.namespace ?? '', kind: r.kind, name: r.workload }
}

export function idOf(r: Row): string {
  return [r.cluster, r.namespace ?? '', r.kind, r.workload, r.type, r.name ?? ''].join('/')
}

export function itemOf(r: Row): Item {
  return {
    cluster: r.cluster, ...(r.namespace ? { namespace: r.namespace } : {}), ...(r.name ? { name: r.name } : { kind: r.kind, workload: r.workload }),
  }
}

/** A list of the server, which may be absent. */
export function list<T>(of: readonly T[] | null | undefined): readonly T[] {
  return of ?? []
}
