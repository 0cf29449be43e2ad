// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/internal/scheduler/simulate/simcluster"
)

// Defaults of Koordinator's LoadAware plugin and of its node agent.
const (
	koordinatorName   = "KoordinatorLoadAware"
	koordinatorWeight = 1
	koordinatorExpiry = 180 * time.Second
	cpuFactor         = 0.85
	memoryFactor      = 0.70
	cpuThreshold      = 65
	memoryThreshold   = 95
	koordinatorWindow = 5 * time.Minute
)

// koordinator is Koordinator's load-aware formula: what a node reported, plus for each of its pods that is new or not reported
// what its estimate (85 % of the CPU request, 70 % of memory) is above its reported use, plus the estimate of the pod that comes. A
// node's report is an average of five minutes, sent each minute. Filter rejects above 65 % of CPU or 95 % of memory, and a node
// whose report has expired; Score is the mean of what is free of both resources. The expiry counts from the arrival of a report:
// from its time stamp a pipeline that is 180 s late would take every node out.
type koordinator struct {
	env   Env
	nodes []koordNode
	pods  []podReport
}

// koordNode is what is known of a node.
type koordNode struct {
	reported, arrived time.Duration
	hasReport         bool
	cpu, memory       float64
	// pods are the running pods by index, each with the part of its use that the last report included.
	pods map[int]float64
	// extraCPU and extraMemory are the excess of estimates over reported use; dirty marks them as outdated.
	extraCPU, extraMemory float64
	dirty                 bool
}

// podReport keeps the last samples of a pod's CPU use.
type podReport struct {
	samples []float32
	next    int
}

var (
	_ fwk.FilterPlugin = &koordinator{}
	_ fwk.ScorePlugin  = &koordinator{}
)

// Koordinator is the default profile with Koordinator's plugin at its weight of 1.
func Koordinator(env Env) Policy {
	k := newKoordinator(env)
	return Policy{
		Plugin:  koordinatorName,
		New:     always(k),
		Weight:  koordinatorWeight,
		Start:   k.start,
		Bound:   k.bound,
		Removed: k.removed,
		Scraped: k.scraped,
	}
}

// KoordinatorAlone is Koordinator's plugin with no other scores beside it, which its users can set: the formula at its best.
func KoordinatorAlone(env Env) Policy {
	p := Koordinator(env)
	p.Alone = true
	return p
}

func newKoordinator(env Env) *koordinator {
	k := &koordinator{env: env, nodes: make([]koordNode, len(env.World().Nodes)), pods: make([]podReport, len(env.World().Pods))}
	for i := range k.nodes {
		k.nodes[i].pods = map[int]float64{}
	}

	return k
}

func (k *koordinator) Name() string { return koordinatorName }

// start lets each node report each minute, at a moment of its own.
func (k *koordinator) start() {
	for i := range k.nodes {
		var report func()
		report = func() {
			k.env.At(k.env.Now()+reportEvery, report)
			k.report(i)
		}
		k.env.At(k.env.Now()+time.Duration(k.env.Random(i, -1)*float64(reportEvery)), report)
	}
}

// report sends the use of a node and of its pods; it arrives after the delay.
func (k *koordinator) report(i int) {
	cpu, cpuOK := k.env.Meter().Read("cpu_usage_avg_5m", i)
	memory, memoryOK := k.env.Meter().Read("mem_usage_avg_5m", i)

	at := k.env.Now()
	if !cpuOK || !memoryOK || k.env.Meter().Down(at) {
		return
	}

	// Use is read now and not on arrival, when the pods may be others.
	used := map[int]float64{}
	for pod := range k.nodes[i].pods {
		if u, ok := k.pods[pod].mean(); ok {
			used[pod] = u
		}
	}

	k.env.At(at+k.env.Spec().Metrics.Delay.Duration, func() {
		n := &k.nodes[i]
		n.hasReport = true
		n.reported = at
		n.arrived = k.env.Now()
		n.cpu = cpu
		n.memory = memory
		n.dirty = true
		for pod := range n.pods {
			n.pods[pod] = -1
			if u, ok := used[pod]; ok {
				n.pods[pod] = u
			}
		}
	})
}

func (k *koordinator) scraped() {
	keep := int(max(1, koordinatorWindow/k.env.Spec().Metrics.Scrape.Duration))
	for _, pod := range k.env.Truth().Running() {
		r := &k.pods[pod]
		use := float32(k.env.Truth().PodUse(int(pod)))
		if len(r.samples) < keep {
			r.samples = append(r.samples, use)
			continue
		}

		r.samples[r.next] = use
		r.next = (r.next + 1) % keep
	}
}

func (r *podReport) mean() (float64, bool) {
	var sum float64
	for _, s := range r.samples {
		sum += float64(s)
	}

	return sum / float64(max(1, len(r.samples))), len(r.samples) > 0
}

func (k *koordinator) bound(pod, node int) {
	k.nodes[node].pods[pod] = -1
	k.nodes[node].dirty = true
}

func (k *koordinator) removed(pod, node int) {
	delete(k.nodes[node].pods, pod)
	k.nodes[node].dirty = true
	k.pods[pod] = podReport{}
}

// estimate of a pod by its requests.
func estimate(p *simcluster.Pod) (cpu, memory float64) {
	return cpuFactor * float64(p.CPU), memoryFactor * float64(p.Memory)
}

// load returns the use of a node that the plugin expects with the pod on it, as shares of capacity.
func (k *koordinator) load(pod int, i int) (cpu, memory float64) {
	w := k.env.World()
	n := &k.nodes[i]
	if n.dirty {
		n.extraCPU = 0
		n.extraMemory = 0
		n.dirty = false
		for p, used := range n.pods {
			fresh := k.env.Truth().Since(p) > n.reported-reportEvery
			if used >= 0 && !fresh {
				continue
			}

			c, m := estimate(&w.Pods[p])
			n.extraCPU += math.Round(max(0, c-max(0, used)))

			if used >= 0 {
				m -= float64(w.MemoryUse(p))
			}
			n.extraMemory += math.Round(max(0, m))
		}
	}

	c, m := estimate(&w.Pods[pod])
	return n.cpu + (n.extraCPU+c)/float64(w.Nodes[i].CPU), n.memory + (n.extraMemory+m)/float64(w.Nodes[i].Memory)
}

func (k *koordinator) expired(i int) bool { return k.env.Now()-k.nodes[i].arrived > koordinatorExpiry }

// Filter implements fwk.FilterPlugin.
func (k *koordinator) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	i := index(k.env, info)
	if !k.nodes[i].hasReport {
		return nil
	}

	if k.expired(i) {
		return fwk.NewStatus(fwk.Unschedulable, "the report of the node has expired")
	}

	if cpu, memory := k.load(k.env.Pod(pod), i); math.Round(100*cpu) > cpuThreshold || math.Round(100*memory) > memoryThreshold {
		return fwk.NewStatus(fwk.Unschedulable, "load is too high")
	}

	return nil
}

// Score implements fwk.ScorePlugin.
func (k *koordinator) Score(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	i := index(k.env, info)
	if !k.nodes[i].hasReport || k.expired(i) {
		return fwk.MinScore, nil
	}

	cpu, memory := k.load(k.env.Pod(pod), i)
	free := func(u float64) int64 { return int64(max(0, 1-u) * float64(fwk.MaxScore)) }
	return (free(cpu) + free(memory)) / 2, nil
}

// ScoreExtensions implements fwk.ScorePlugin.
func (k *koordinator) ScoreExtensions() fwk.ScoreExtensions { return nil }
