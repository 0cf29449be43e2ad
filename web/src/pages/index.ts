import type { FunctionComponent } from 'preact'
import type { Key } from '../i18n'
import { Autoscaling } from './autoscaling'
import { Cost } from './cost'
import { Health } from './health'
import { Nodes } from './nodes'
import { Overview } from './overview'
import { Rules } from './rules'
import { Workload } from './workload'
import { Worklist } from './worklist'

export interface PageProps { path: string[]; query: URLSearchParams }

export const pages: Record<string, { title: Key; component: FunctionComponent<PageProps> }> = {
  overview: { title: 'nav.overview', component: Overview },
  worklist: { title: 'nav.worklist', component: Worklist },
  workload: { title: 'nav.workload', component: Workload },
  autoscaling: { title: 'nav.autoscaling', component: Autoscaling },
  nodes: { title: 'nav.nodes', component: Nodes },
  cost: { title: 'nav.cost', component: Cost },
  rules: { title: 'nav.rules', component: Rules },
  health: { title: 'nav.health', component: Health },
}
