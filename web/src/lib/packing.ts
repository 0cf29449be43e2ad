// What-if of packing: how few of the nodes would hold all requests.
import type { Node } from '../api'
import { known } from './format'

export interface Packing { nodes: number; free: number; price: number | null }

/**
 * Returns a lower bound of the nodes that hold the sum of all requests: the largest nodes are filled first, as if pods could be divided.
 * Real pods need at least as many. Nodes that are not ready hold nothing. Undefined without a node.
 */
export function packNodes(nodes: readonly Node[]): Packing | undefined {
  const usable = nodes.filter(n => n.ready && n.cpuMilli > 0 && n.memoryBytes > 0)
  if (usable.length === 0) return undefined
  const cpu = nodes.reduce((s, n) => s + n.cpuRequestedMilli, 0)
  const memory = nodes.reduce((s, n) => s + n.memoryRequestedBytes, 0)
  const needed = (by: (n: Node) => number, amount: number) => {
    let kept = 0
    for (const n of [...usable].sort((a, b) => by(b) - by(a))) {
      if (amount <= 0) break
      amount -= by(n)
      kept++
    }
    return kept
  }
  const kept = Math.max(1, needed(n => n.cpuMilli, cpu), needed(n => n.memoryBytes, memory))
  const free = usable.length - kept
  const cheapest = usable.map(n => n.pricePerMonth).filter(known).sort((a, b) => a - b)
  return { nodes: kept, free, price: cheapest.length === usable.length ? cheapest.slice(0, free).reduce((s, p) => s + p, 0) : null }
}
