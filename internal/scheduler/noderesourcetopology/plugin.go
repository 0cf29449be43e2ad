// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/internal/scheduler/pluginconfig"
)

// Name of the plugin in a scheduler's configuration.
const Name = pluginconfig.NodeResourceTopologyMatchName

// Reasons in a pod's events. The scheduler counts nodes by reason, so they describe the request and not the node.
const (
	reasonNoZone        = "node(s) had insufficient resource of NUMA node (no zone has %s free)"
	reasonNoZoneEver    = "node(s) had insufficient resource of NUMA node (no zone is as large as %s)"
	reasonTooLittle     = "node(s) had insufficient resource of NUMA nodes (less than %s free in all zones)"
	reasonTooLittleEver = "node(s) had insufficient resource of NUMA nodes (less than %s in all zones)"
	reasonUnknown       = "node(s) had no NodeResourceTopology with NUMA zones"
	reasonTaken         = "NUMA zones were taken meanwhile"
)

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ScoreExtensions   = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.PreBindPlugin     = (*Plugin)(nil)
	_ fwk.BindPlugin        = (*Plugin)(nil)
	_ fwk.PostBindPlugin    = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// Plugin is NodeResourceTopologyMatch for one profile.
type Plugin struct {
	core    *core
	queue   fwk.PodActivator
	api     api
	aware   []corev1.ResourceName
	missing pluginconfig.MissingTopology
	ready   <-chan struct{}
	// snapshot returns a node as the scheduler sees it in this cycle.
	snapshot func(node string) (fwk.NodeInfo, error)
}

// api is the part of fwk.Handle that writes.
type api interface {
	ClientSet() kubernetes.Interface
	// APICacher returns nil unless the scheduler writes asynchronously.
	APICacher() fwk.APICacher
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// PreFilter reads the zone request of the pod, once for all nodes. Pods without one skip the plugin. The first pods
// after the start wait here until the zones are known.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	r := p.request(pod)
	if r == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}

	select {
	case <-p.ready:
	case <-ctx.Done():
		return nil, fwk.AsStatus(ctx.Err())
	}

	state.Write(stateKey, newCycle(p.core.store.requests.intern(r)))
	return nil, nil
}

// PreFilterExtensions returns nil: in trials with or without a pod, Filter gets a changed node.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter excludes nodes whose zones do not have the request free.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	c := readCycle(state)
	if c == nil {
		return nil
	}

	// The verdict is the node's, whether the pod passes depends on the profile.
	v := p.answer(info, c.request).verdict
	if v == unknown || v == zoneless {
		p.countUnknown(v)
	}

	if v.passes(p.missing) {
		return nil
	}

	// One remembered rejection is enough: a change of any node wakes the pod.
	if c.reject() {
		p.core.waiting.add(waiter{
			pod:     pod,
			request: c.request,
			missing: p.missing,
			queue:   p.queue,
		})
	}

	return c.status(v)
}

// answer returns the result of r on a node, computed if it is not cached.
func (p *Plugin) answer(info fwk.NodeInfo, r *request) *answer {
	if a := p.core.store.cached(info, r); a != nil {
		return a
	}

	return p.core.store.compute(p.view(info), r)
}

// view distinguishes the node of the scheduler's snapshot from its copies for trials.
func (p *Plugin) view(info fwk.NodeInfo) view {
	snapshot, err := p.snapshot(info.Node().Name)
	if err != nil {
		snapshot = info // An unlisted node cannot be a copy.
	}

	return view{info: info, snapshot: snapshot, aware: p.aware}
}

func (p *Plugin) request(pod *corev1.Pod) *request { return requestOf(pod, p.aware) }

func (p *Plugin) countUnknown(v verdict) {
	reason := "missing"
	if v == zoneless {
		reason = "zoneless"
	}

	result := "pass"
	if p.missing == pluginconfig.MissingTopologyReject {
		result = "reject"
	}

	p.core.metrics.unknown.WithLabelValues(reason, result).Inc()
}

// PreScore skips Score for pods without a zone request, and for those that get one zone on every node: all scores
// would be equal.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if c := readCycle(state); c == nil || p.core.store.singleZoneOnly(c.request) {
		return fwk.NewStatus(fwk.Skip)
	}

	return nil
}

// Score prefers few zones, then near ones; see scoreOf.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c := readCycle(state)
	if c == nil {
		return 0, nil
	}

	return p.answer(info, c.request).score, nil
}

// ScoreExtensions implements fwk.ScorePlugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore gives nodes without assigned zones the mean of the others, which neither attracts nor repels pods.
func (p *Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	var sum, count int64
	for i := range scores {
		if scores[i].Score != noScore {
			sum += scores[i].Score
			count++
		}
	}

	mean := int64(0)
	if count > 0 {
		mean = sum / count
	}

	for i := range scores {
		if scores[i].Score == noScore {
			scores[i].Score = mean
		}
	}

	return nil
}
