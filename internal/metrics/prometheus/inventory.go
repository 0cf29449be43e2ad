// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/units"
)

// Metrics of kube-state-metrics about current pods.
const (
	containerInfoMetric     = "kube_pod_container_info"
	initContainerInfoMetric = "kube_pod_init_container_info"
	requestsMetric          = "kube_pod_container_resource_requests"
	limitsMetric            = "kube_pod_container_resource_limits"
	initRequestsMetric      = "kube_pod_init_container_resource_requests"
	initLimitsMetric        = "kube_pod_init_container_resource_limits"
)

// inventoryWindow covers a missed scrape of kube-state-metrics, and is short enough to leave out deleted objects.
const inventoryWindow = 5 * time.Minute

// maxAmount is the largest accepted number of cores or bytes; a thousand times as much fits into an int64.
const maxAmount = 1 << 50

// inventory holds workloads and the pods from which they are derived.
type inventory struct {
	// at is the time of all values.
	at     time.Time
	owners *owners
	byRef  map[workload.Ref]*workloadTally
	pods   map[objectName]*podTally
	ended  map[objectName]bool
	// requests is the number of requests found.
	requests int
}

// workloadTally is one workload: its pods, and the number of pods with each amount of each resource.
type workloadTally struct {
	pods       map[string]bool
	containers map[string]*containerTally
}

type containerTally struct {
	role    workload.Role
	amounts map[amountKey]map[int64]int
}

// amountKey is a request or a limit of a resource.
type amountKey struct {
	resource string
	limit    bool
}

// podTally holds the requests of one pod by container.
type podTally struct {
	owner    workload.Ref
	node     string
	requests map[string]cost.Amounts
}

// readInventory reads the current pods.
func (t *ClusterState) readInventory(ctx context.Context) (*inventory, error) {
	sel := t.expr.selector(containerInfoMetric)
	now, err := t.inventoryTime(ctx, sel)
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}

	from := now.Add(-inventoryWindow)
	in, err := t.scopeOf(ctx, t.namespaces, sel, from, now)
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}

	in, err = t.owners.clusters.narrow(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}

	owners, err := t.owners.read(ctx, from, now, in)
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}

	inv := &inventory{
		at:     now,
		owners: owners,
		byRef:  map[workload.Ref]*workloadTally{},
		pods:   map[objectName]*podTally{},
		ended:  map[objectName]bool{},
	}

	const byResource = "namespace, pod, container, resource"
	for _, m := range []struct {
		metric, groupLabels string
		matchers            []Matcher
		add                 func(metrics.Sample)
	}{
		// Pods that have ended are read first: their containers and amounts are skipped.
		{phaseMetric, "namespace, pod, phase", []Matcher{{Label: "phase", Op: "=~", Value: "Succeeded|Failed"}}, inv.addEnded},
		{containerInfoMetric, "namespace, pod, container", nil, func(s metrics.Sample) { inv.addContainer(workload.App, s) }},
		{initContainerInfoMetric, "namespace, pod, container, restart_policy", nil, func(s metrics.Sample) { inv.addContainer(workload.Init, s) }},
		{requestsMetric, byResource, nil, func(s metrics.Sample) { inv.addAmount(workload.App, false, s) }},
		{limitsMetric, byResource, nil, func(s metrics.Sample) { inv.addAmount(workload.App, true, s) }},
		{initRequestsMetric, byResource, nil, func(s metrics.Sample) { inv.addAmount(workload.Init, false, s) }},
		{initLimitsMetric, byResource, nil, func(s metrics.Sample) { inv.addAmount(workload.Init, true, s) }},
	} {
		err := t.eachBatch(ctx, in, func(namespaces []Matcher) error {
			list, err := t.Instant(ctx, t.expr.latest(m.metric, m.groupLabels, slices.Concat(namespaces, m.matchers)...), now)
			for _, sample := range list {
				m.add(sample)
			}

			return err
		})
		if err != nil {
			return nil, fmt.Errorf("inventory: %s: %w", m.metric, err)
		}
	}

	return inv, nil
}

// inventoryTime returns now, or the last time with containers where there are none now: a server that has not scraped for hours still has
// the last state.
func (t *ClusterState) inventoryTime(ctx context.Context, sel string) (time.Time, error) {
	now := t.now()
	list, err := t.Instant(ctx, fmt.Sprintf("count(last_over_time(%s[%s]))", sel, promDuration(inventoryWindow)), now)
	if err != nil || len(list) > 0 {
		return now, err
	}

	last, err := t.newest(ctx, sel, now)
	if err != nil || last.IsZero() {
		return now, err
	}

	return last, nil
}

// addEnded records a pod that has ended.
func (v *inventory) addEnded(s metrics.Sample) {
	if s.Value == 1 {
		v.ended[objectName{s.Labels["namespace"], s.Labels["pod"]}] = true
	}
}

// find returns the tallies of a container's workload and pod, or nil where the container does not count.
func (v *inventory) find(l metrics.Labels, role workload.Role) (*containerTally, *podTally) {
	pod := objectName{l["namespace"], l["pod"]}
	if pod.namespace == "" || pod.name == "" || l["container"] == "" || v.ended[pod] {
		return nil, nil
	}

	podEntry := v.pods[pod]
	if podEntry == nil {
		podEntry = &podTally{requests: map[string]cost.Amounts{}}
		podEntry.owner, podEntry.node = v.owners.resolve(pod.namespace, pod.name)
		podEntry.owner = podEntry.owner.RunGroup()
		v.pods[pod] = podEntry
	}

	t := v.byRef[podEntry.owner]
	if t == nil {
		t = &workloadTally{pods: map[string]bool{}, containers: map[string]*containerTally{}}
		v.byRef[podEntry.owner] = t
	}

	t.pods[pod.name] = true
	c := t.containers[l["container"]]
	if c == nil {
		c = &containerTally{role: role, amounts: map[amountKey]map[int64]int{}}
		t.containers[l["container"]] = c
	}

	return c, podEntry
}

// addContainer records a container; init containers with the restart policy Always are sidecars.
func (v *inventory) addContainer(role workload.Role, s metrics.Sample) {
	if c, _ := v.find(s.Labels, role); c != nil && s.Labels["restart_policy"] == "Always" {
		c.role = workload.Sidecar
	}
}

// addAmount records a request or a limit.
func (v *inventory) addAmount(role workload.Role, limit bool, s metrics.Sample) {
	resource := s.Labels["resource"]
	value := s.Value

	isGPU := slices.Contains(gpuResources(), resource)
	if resource != "cpu" && resource != "memory" && !isGPU || !(value >= 0 && value <= maxAmount) {
		return
	}

	c, pod := v.find(s.Labels, role)
	if c == nil {
		return
	}

	// The requests of each pod determine its cost; the counts of amounts below show the size of most pods of the workload.
	if !limit {
		v.requests++
		amounts := pod.requests[s.Labels["container"]]
		setAmount(&amounts, resource, value)
		pod.requests[s.Labels["container"]] = amounts
	}

	if isGPU {
		return
	}

	// CPU is counted in thousandths of a core, so that amounts are integers.
	if resource == "cpu" {
		value *= 1000
	}

	key := amountKey{resource: resource, limit: limit}
	if c.amounts[key] == nil {
		c.amounts[key] = map[int64]int{}
	}

	c.amounts[key][int64(math.Round(value))]++
}

// mostFrequent returns the amount that most pods have, the larger of equally frequent ones; 0 where no pod has any.
func (c *containerTally) mostFrequent(key amountKey) int64 {
	best := int64(0)
	votes := 0
	for value, n := range c.amounts[key] {
		if n > votes || n == votes && value > best {
			best = value
			votes = n
		}
	}

	return best
}

func (c *containerTally) resources(limit bool) workload.Resources {
	return workload.Resources{
		CPU:    units.MilliCPU(c.mostFrequent(amountKey{"cpu", limit})),
		Memory: units.Bytes(c.mostFrequent(amountKey{"memory", limit})),
	}
}

// workloads returns the workloads, sorted.
func (v *inventory) workloads() []workload.Workload {
	out := make([]workload.Workload, 0, len(v.byRef))
	for ref, t := range v.byRef {
		w := workload.Workload{Ref: ref, Replicas: int32(min(len(t.pods), math.MaxInt32))}
		// Init containers first, as in a workload read from its template.
		for _, init := range []bool{true, false} {
			for _, n := range slices.Sorted(maps.Keys(t.containers)) {
				if c := t.containers[n]; (c.role != workload.App) == init {
					w.Containers = append(w.Containers, workload.Container{
						Name:     n,
						Role:     c.role,
						Requests: c.resources(false),
						Limits:   c.resources(true),
					})
				}
			}
		}

		out = append(out, w)
	}

	slices.SortFunc(out, func(a, b workload.Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})

	return out
}

// clusterPods returns the pods with their effective requests: the sum over the containers that keep running, or an init container with
// larger requests. The overhead of runtime classes and the order of init containers are unknown.
func (v *inventory) clusterPods() []workload.Pod {
	out := make([]workload.Pod, 0, len(v.pods))
	for pod, p := range v.pods {
		clusterPod := workload.Pod{Name: pod.name, Owner: p.owner, Node: p.node}
		var first cost.Amounts
		for container, a := range p.requests {
			if v.byRef[p.owner].containers[container].role == workload.Init {
				first = maxAmounts(first, a)
				continue
			}

			clusterPod.Requests.CPU += a.CPU
			clusterPod.Requests.Memory += a.Memory
			clusterPod.Requests.GPU += a.GPU
		}

		clusterPod.Requests = maxAmounts(clusterPod.Requests, first)
		out = append(out, clusterPod)
	}

	slices.SortFunc(out, func(a, b workload.Pod) int {
		return cmp.Or(cmp.Compare(a.Owner.Namespace, b.Owner.Namespace), cmp.Compare(a.Name, b.Name))
	})

	return out
}

func maxAmounts(a, b cost.Amounts) cost.Amounts {
	return cost.Amounts{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory), GPU: max(a.GPU, b.GPU)}
}

// gpuResources returns the resource names of whole GPUs in the spelling of kube-state-metrics.
func gpuResources() []string {
	return []string{"nvidia_com_gpu", "amd_com_gpu", "gpu_intel_com_i915", "gpu_intel_com_xe"}
}

// setAmount ignores resources without a price.
func setAmount(a *cost.Amounts, resource string, value float64) {
	switch {
	case resource == "cpu":
		a.CPU = units.MilliCPU(value*1000 + 0.5)
	case resource == "memory":
		a.Memory = units.Bytes(value)
	case slices.Contains(gpuResources(), resource):
		a.GPU += int64(value)
	}
}
