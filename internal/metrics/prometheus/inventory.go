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
	"crane.io/crane/pkg/series"
)

// Metrics of kube-state-metrics that describe pods as they are now.
const (
	containerInfoMetric     = "kube_pod_container_info"
	initContainerInfoMetric = "kube_pod_init_container_info"
	requestsMetric          = "kube_pod_container_resource_requests"
	limitsMetric            = "kube_pod_container_resource_limits"
	initRequestsMetric      = "kube_pod_init_container_resource_requests"
	initLimitsMetric        = "kube_pod_init_container_resource_limits"
	podPhaseMetric          = "kube_pod_status_phase"
)

// inventoryWindow bridges a missed scrape of kube-state-metrics, and is short enough that what is gone is gone.
const inventoryWindow = 5 * time.Minute

// Inventory implements metrics.Inventory: the workloads that have pods now (or had when the server last scraped), in the
// order of their names. Pods that have ended are left out. Where pods of one workload differ, as during a rollout, the
// amount that most of them have is taken, and of equally many the larger.
func (s *Source) Inventory(ctx context.Context, namespaces []string) ([]workload.Workload, error) {
	return s.ClusterState(namespaces).Workloads(ctx)
}

// readInventory reads the pods that there are, with the time for which that holds.
func (s *Source) readInventory(ctx context.Context, namespaces []string) (*inventory, error) {
	sel := selector(containerInfoMetric, s.matchers()...)
	now, err := s.inventoryTime(ctx, sel)
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	from := now.Add(-inventoryWindow)
	in, err := s.scopeOf(ctx, namespaces, sel, from, now)
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	owners, err := s.readOwners(ctx, from, now, in)
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	inv := &inventory{at: now, owners: owners, byRef: map[workload.Ref]*workloadTally{}, pods: map[objectName]*podTally{}, ended: map[objectName]bool{}}
	for _, read := range []struct {
		metric, by string
		own        []Matcher
		visit      func(metrics.Labels, float64)
	}{
		{podPhaseMetric, "namespace, pod, phase", []Matcher{{Label: "phase", Op: "=~", Value: "Succeeded|Failed"}}, inv.phase},
		{containerInfoMetric, "namespace, pod, container", nil, inv.container(workload.App)},
		{initContainerInfoMetric, "namespace, pod, container, restart_policy", nil, inv.container(workload.Init)},
		{requestsMetric, "namespace, pod, container, resource", nil, inv.amount(workload.App, false)},
		{limitsMetric, "namespace, pod, container, resource", nil, inv.amount(workload.App, true)},
		{initRequestsMetric, "namespace, pod, container, resource", nil, inv.amount(workload.Init, false)},
		{initLimitsMetric, "namespace, pod, container, resource", nil, inv.amount(workload.Init, true)},
	} {
		if err := s.presentNow(ctx, read.metric, read.by, now, in, read.own, read.visit); err != nil {
			return nil, fmt.Errorf("inventory: %s: %w", read.metric, err)
		}
	}
	return inv, nil
}

// inventoryTime is now, or the last time at which there were containers where there are none now: a server that has not
// scraped for hours still knows what there was.
func (s *Source) inventoryTime(ctx context.Context, sel string) (time.Time, error) {
	now := s.now()
	list, err := s.Instant(ctx, fmt.Sprintf("count(last_over_time(%s[%s]))", sel, promDuration(inventoryWindow)), now)
	if err != nil || len(list) > 0 {
		return now, err
	}
	last, err := s.newest(ctx, sel, now)
	if err != nil || last.IsZero() {
		return now, err
	}
	return last, nil
}

// presentNow visits the latest values of a metric that are not older than the inventory window.
func (s *Source) presentNow(ctx context.Context, metric, by string, now time.Time, in scope, own []Matcher, visit func(metrics.Labels, float64)) error {
	return s.eachBatch(ctx, in, func(namespaces []Matcher) error {
		sel := selector(metric, s.matchers(slices.Concat(namespaces, own)...)...)
		list, err := s.Instant(ctx, fmt.Sprintf("max by (%s) (last_over_time(%s[%s]))", by, sel, promDuration(inventoryWindow)), now)
		for _, sample := range list {
			visit(sample.Labels, sample.Value)
		}
		return err
	})
}

// inventory gathers workloads from what is known of their pods.
type inventory struct {
	// at is the time for which all of it holds.
	at     time.Time
	owners *owners
	byRef  map[workload.Ref]*workloadTally
	pods   map[objectName]*podTally
	ended  map[objectName]bool
	// requests is the number of requests that were found.
	requests int
}

// workloadTally is one workload: its pods, and how many of them have which amount of what.
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

func (v *inventory) phase(l metrics.Labels, value float64) {
	if value == 1 {
		v.ended[objectName{l["namespace"], l["pod"]}] = true
	}
}

// find returns what is gathered of a container, over all pods of its workload and of the one pod; nil where it does not
// count.
func (v *inventory) find(l metrics.Labels, role workload.Role) (*containerTally, *podTally) {
	pod := objectName{l["namespace"], l["pod"]}
	if pod.namespace == "" || pod.name == "" || l["container"] == "" || v.ended[pod] {
		return nil, nil
	}
	one := v.pods[pod]
	if one == nil {
		one = &podTally{requests: map[string]cost.Amounts{}}
		one.owner, one.node = v.owners.resolve(pod.namespace, pod.name)
		v.pods[pod] = one
	}
	ref := one.owner
	t := v.byRef[ref]
	if t == nil {
		t = &workloadTally{pods: map[string]bool{}, containers: map[string]*containerTally{}}
		v.byRef[ref] = t
	}
	t.pods[pod.name] = true
	c := t.containers[l["container"]]
	if c == nil {
		c = &containerTally{role: role, amounts: map[amountKey]map[int64]int{}}
		t.containers[l["container"]] = c
	}
	return c, one
}

func (v *inventory) container(role workload.Role) func(metrics.Labels, float64) {
	return func(l metrics.Labels, _ float64) {
		if c, _ := v.find(l, role); c != nil && l["restart_policy"] == "Always" {
			c.role = workload.Sidecar
		}
	}
}

func (v *inventory) amount(role workload.Role, limit bool) func(metrics.Labels, float64) {
	return func(l metrics.Labels, value float64) {
		resource := l["resource"]
		isGPU := slices.Contains(gpuResources(), resource)
		if resource != "cpu" && resource != "memory" && !isGPU || !(value >= 0 && value <= maxAmount) {
			return
		}
		c, pod := v.find(l, role)
		if c == nil {
			return
		}
		if !limit {
			v.requests++
			pod.request(l["container"], resource, value)
		}
		if isGPU {
			return
		}
		if resource == "cpu" {
			value *= 1000
		}
		key := amountKey{resource: resource, limit: limit}
		if c.amounts[key] == nil {
			c.amounts[key] = map[int64]int{}
		}
		c.amounts[key][int64(math.Round(value))]++
	}
}

// most is the amount that most pods have, the larger of equals; 0 where none has any.
func (c *containerTally) most(key amountKey) int64 {
	best, votes := int64(0), 0
	for value, n := range c.amounts[key] {
		if n > votes || n == votes && value > best {
			best, votes = value, n
		}
	}
	return best
}

func (v *inventory) workloads() []workload.Workload {
	out := make([]workload.Workload, 0, len(v.byRef))
	for ref, t := range v.byRef {
		w := workload.Workload{Ref: ref, Replicas: int32(min(len(t.pods), math.MaxInt32))}
		for _, n := range slices.Sorted(maps.Keys(t.containers)) {
			c := t.containers[n]
			w.Containers = append(w.Containers, workload.Container{
				Name: n, Role: c.role,
				Requests: c.resources(false),
				Limits:   c.resources(true),
			})
		}
		// Init containers first, as in a workload read from its template.
		slices.SortStableFunc(w.Containers, func(a, b workload.Container) int {
			return cmp.Compare(btoi(a.Role == workload.App), btoi(b.Role == workload.App))
		})
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b workload.Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func (c *containerTally) resources(limit bool) workload.Resources {
	return workload.Resources{
		CPU:    series.MilliCPU(c.most(amountKey{"cpu", limit})),
		Memory: series.Bytes(c.most(amountKey{"memory", limit})),
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
