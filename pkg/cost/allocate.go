// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
)

// Workload identifies a workload.
type Workload struct {
	Namespace string `json:"namespace,omitempty"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
}

// String returns namespace/Kind/name.
func (w Workload) String() string { return w.Namespace + "/" + w.Kind + "/" + w.Name }

// Pod holds the fields of a pod that determine its cost.
type Pod struct {
	Workload Workload
	// Node is empty while the pod is not scheduled.
	Node    string
	Request Amounts
	// Usage is nil if it is unknown, as opposed to zero. Its GPUs are ignored: a pod holds them exclusively.
	Usage *Amounts
}

// Shares are the cost of the same pods by three measures.
type Shares struct {
	// Request is the cost by request, Usage by usage, and Max by the larger of the two for each resource: OpenCost charges
	// the greater of request and usage (its specification).
	Request Split `json:"request"`
	Usage   Split `json:"use"`
	Max     Split `json:"max"`
}

// Plus returns the sum by measure.
func (s Shares) Plus(t Shares) Shares {
	return Shares{Request: s.Request.Plus(t.Request), Usage: s.Usage.Plus(t.Usage), Max: s.Max.Plus(t.Max)}
}

// Bill is the cost of some pods.
type Bill struct {
	Pods int
	// WithoutUsage counts the pods with unknown usage; they cost nothing by usage, and their request by max.
	WithoutUsage int
	Cost         Shares
}

func (b *Bill) add(o Bill) {
	b.Pods += o.Pods
	b.WithoutUsage += o.WithoutUsage
	b.Cost = b.Cost.Plus(o.Cost)
}

type (
	// WorkloadCost is the bill of one workload.
	WorkloadCost struct {
		Workload
		Bill
	}
	// NamespaceCost is the bill of all workloads of a namespace.
	NamespaceCost struct {
		Namespace string
		Bill
	}
)

// NodeCost is the cost of a node and its idle part.
type NodeCost struct {
	Quote
	Pods int
	Idle Shares
}

// Allocation is the cost of a cluster by workload. For each measure and resource, the workloads and Idle add up to Nodes
// exactly.
type Allocation struct {
	Currency string
	// Workloads and Namespaces are sorted by cost by max, highest first; Nodes by name.
	Workloads  []WorkloadCost
	Namespaces []NamespaceCost
	Nodes      []NodeCost
	// Cluster is the cost of all nodes, Used the bill of all workloads, Idle the rest.
	Cluster Split
	Used    Bill
	Idle    Shares
	// Pending pods are not scheduled, and those of OnUnknownNode run on a node without a price: neither is charged.
	Pending, OnUnknownNode int
}

// Allocate allocates the cost of each node to its pods: a pod is charged, for each resource, its share of the capacity of
// the node. If the pods of a node hold more than the capacity (by usage, never by request) they share the node in proportion
// and nothing is idle, so that the charges do not exceed the cost of the node, as they would in OpenCost. Resources reserved
// for the system are idle, as in OpenCost.
func Allocate(t *Tariff, pods []Pod) Allocation {
	out := Allocation{Currency: t.Currency}
	byNode := map[string][]Pod{}
	for _, p := range pods {
		_, priced := t.quotes[p.Node]
		switch {
		case p.Node == "":
			out.Pending++
		case !priced:
			out.OnUnknownNode++
		default:
			byNode[p.Node] = append(byNode[p.Node], p)
		}
	}

	// The pods of a node share its cost; their bills add up by workload and by namespace.
	workloads := map[Workload]*Bill{}

	namespaces := map[string]*Bill{}
	for _, name := range slices.Sorted(maps.Keys(t.quotes)) {
		q := t.quotes[name]
		bills, idle := shareNode(q, byNode[name])
		for i, p := range byNode[name] {
			billOf(workloads, p.Workload).add(bills[i])
			billOf(namespaces, p.Workload.Namespace).add(bills[i])
			out.Used.add(bills[i])
		}

		out.Nodes = append(out.Nodes, NodeCost{Quote: q, Pods: len(bills), Idle: idle})
		out.Idle = out.Idle.Plus(idle)
		out.Cluster = out.Cluster.Plus(q.Cost)
	}

	for w, b := range workloads {
		out.Workloads = append(out.Workloads, WorkloadCost{Workload: w, Bill: *b})
	}

	for ns, b := range namespaces {
		out.Namespaces = append(out.Namespaces, NamespaceCost{Namespace: ns, Bill: *b})
	}

	slices.SortFunc(out.Workloads, func(a, b WorkloadCost) int {
		return cmp.Or(compareCost(a.Bill, b.Bill), cmp.Compare(a.Workload.String(), b.Workload.String()))
	})
	slices.SortFunc(out.Namespaces, func(a, b NamespaceCost) int {
		return cmp.Or(compareCost(a.Bill, b.Bill), cmp.Compare(a.Namespace, b.Namespace))
	})

	return out
}

// InNamespaces returns the workloads and the bills of some namespaces, and the sum of these.
func (a Allocation) InNamespaces(names []string) (workloads []WorkloadCost, namespaces []NamespaceCost, sum Bill) {
	for _, w := range a.Workloads {
		if slices.Contains(names, w.Namespace) {
			workloads = append(workloads, w)
		}
	}

	for _, n := range a.Namespaces {
		if slices.Contains(names, n.Namespace) {
			namespaces = append(namespaces, n)
			sum.add(n.Bill)
		}
	}

	return workloads, namespaces, sum
}

func compareCost(a, b Bill) int { return cmp.Compare(b.Cost.Max.Total(), a.Cost.Max.Total()) }

func billOf[K comparable](m map[K]*Bill, key K) *Bill {
	if m[key] == nil {
		m[key] = &Bill{}
	}

	return m[key]
}

// shareNode returns the bill of each pod of a node, and the idle cost of the node.
func shareNode(q Quote, pods []Pod) ([]Bill, Shares) {
	bills := make([]Bill, len(pods))
	idle := Shares{Request: q.Cost, Usage: q.Cost, Max: q.Cost}

	request := make([]Amounts, len(pods))
	use := make([]Amounts, len(pods))
	larger := make([]Amounts, len(pods))
	for i, p := range pods {
		bills[i].Pods = 1
		request[i] = p.Request.clamped()

		if p.Usage == nil {
			bills[i].WithoutUsage = 1
		} else {
			use[i] = p.Usage.clamped()
		}

		use[i].GPU = request[i].GPU
		larger[i] = request[i].Max(use[i])
	}

	// Each measure divides the cost of each resource by its own amounts.
	for _, m := range []struct {
		amounts []Amounts
		split   func(*Shares) *Split
	}{
		{request, func(s *Shares) *Split { return &s.Request }},
		{use, func(s *Shares) *Split { return &s.Usage }},
		{larger, func(s *Shares) *Split { return &s.Max }},
	} {
		rest := m.split(&idle)

		rest.CPU = divide(q.Cost.CPU, int64(q.Size.CPU), len(pods), func(i int) (int64, *Nanos) {
			return int64(m.amounts[i].CPU), &m.split(&bills[i].Cost).CPU
		})
		rest.Memory = divide(q.Cost.Memory, int64(q.Size.Memory), len(pods), func(i int) (int64, *Nanos) {
			return int64(m.amounts[i].Memory), &m.split(&bills[i].Cost).Memory
		})
		rest.GPU = divide(q.Cost.GPU, q.Size.GPU, len(pods), func(i int) (int64, *Nanos) {
			return m.amounts[i].GPU, &m.split(&bills[i].Cost).GPU
		})
	}

	return bills, idle
}

// divide allocates the cost of a capacity to n holders by their shares and returns the rest. Shares are differences of
// rounded running sums, so that they add up without a remainder and none is off by more than a billionth.
func divide(cost Nanos, capacity int64, n int, holder func(i int) (amount int64, share *Nanos)) Nanos {
	sum := int64(0)
	for i := range n {
		amount, _ := holder(i)
		sum += amount
	}

	total := max(capacity, sum)
	if total == 0 || cost <= 0 {
		return cost
	}

	running := int64(0)
	allocated := Nanos(0)
	for i := range n {
		amount, share := holder(i)
		running += amount
		upTo := scale(cost, running, total)
		*share = upTo - allocated
		allocated = upTo
	}

	return cost - allocated
}

// scale returns cost*part/total, rounded down. No argument is negative, and part is at most total, so that the result fits.
func scale(cost Nanos, part, total int64) Nanos {
	hi, lo := bits.Mul64(uint64(cost), uint64(part))
	quotient, _ := bits.Div64(hi, lo, uint64(total))
	return Nanos(quotient)
}
