// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"slices"
)

// The names of the steps that remove Crane; remove-webhooks, detach-helm and clean-nodes are those of a migration.
const (
	stepStopCrane   = "stop-crane"
	stepRelease     = "release-autoscalers"
	stepTemplates   = "write-requests"
	stepAPIs        = "remove-metrics-apis"
	stepResources   = "remove-objects"
	stepDefinitions = "remove-definitions"
	stepCrane       = "remove-crane"
)

// awaySteps returns the steps that remove Crane.
func (b *builder) awaySteps() []step {
	return []step{
		{stepWebhooks, "they refuse writes, or change pods, once craned has stopped", false, b.webhooks()},
		{stepHelm, "`helm upgrade` of Crane would bring it back", false, b.helm()},
		{stepStopCrane, "craned and the agents, which undo on nodes what they did; metric-adapter and crane-scheduler go on", false, b.stop()},
		{stepRelease, "plain HPAs with the same minimum, maximum, metrics and behavior, and at least the replicas of this moment where a forecast or a schedule held them", false, b.release()},
		{stepTemplates, "requests of running pods into templates, which rolls out the workloads", true, b.templates()},
		{stepNodes, "the marks of the agent, and loads, would stay for ever", false, b.nodes(false)},
		{stepAPIs, "no HPA reads them any more", true, b.metricsAPIs()},
		{stepResources, "objects of Crane's kinds: their backup ends with crane migrate finish", true, b.customResources()},
		{stepDefinitions, "Crane's kinds", true, b.dropDefinitions()},
		{stepCrane, "workloads, rights, admission policies and configuration", true, b.components()},
	}
}

func (b *builder) release() []operation {
	var out []operation
	for _, item := range b.state.Items {
		if item.Object.GetKind() == "HorizontalPodAutoscaler" {
			out = append(out, releaseHPA{RefOf(item.Object)})
		}
	}

	return out
}

func (b *builder) templates() []operation {
	if b.options.Requests != RequestsTemplate {
		return nil
	}

	var out []operation
	for _, t := range b.state.Templates {
		out = append(out, writeRequests{t})
	}

	return out
}

// metricsAPIs deletes the registrations of metric-adapter unless it is kept.
func (b *builder) metricsAPIs() []operation {
	if b.options.MetricAdapter == Keep {
		return nil
	}

	return b.removals(func(i storedItem) bool { return i.Object.GetKind() == "APIService" })
}

// customResources removes what others own first, so that an undo creates owners first.
func (b *builder) customResources() []operation {
	order := []string{"Recommendation", "TimeSeriesPrediction", "Substitute", "NodeResourceTopology"}
	rank := func(o *Object) int {
		if i := slices.Index(order, o.GetKind()); i >= 0 {
			return i
		}

		return len(order)
	}

	items := slices.SortedStableFunc(slices.Values(b.state.Items), func(a, b storedItem) int { return cmp.Compare(rank(a.Object), rank(b.Object)) })
	var out []operation
	for _, item := range items {
		if ref := RefOf(item.Object); slices.Contains(gocraneGroups(), ref.group()) {
			out = append(out, dropObject{ref})
		}
	}

	return out
}

func (b *builder) dropDefinitions() []operation {
	var out []operation
	for _, item := range b.state.Items {
		if item.Object.GetKind() == "CustomResourceDefinition" {
			out = append(out, dropDefinition{removeObject{RefOf(item.Object)}})
		}
	}

	return out
}

// components returns everything of Crane that no other step removes; workloads first. The Namespace stays, because the records are in it.
func (b *builder) components() []operation {
	removed := func(i storedItem) bool {
		switch {
		case i.Component == componentHelm || i.Component == componentNodes || i.Component == componentObjects || isAdmission(i.Object):
			return false
		case i.Component == componentAdapter && b.options.MetricAdapter == Keep, i.Component == componentScheduler && b.options.Scheduler == Keep:
			return false
		case b.options.Scheduler == Keep && i.Object.GetKind() == "ConfigMap" && i.Object.GetName() == "crane-node-load-policy":
			return false // crane-scheduler reads it
		}

		return !slices.Contains([]string{"Namespace", "CustomResourceDefinition", "APIService", "HorizontalPodAutoscaler"}, i.Object.GetKind())
	}

	workload := func(i storedItem) bool {
		return i.Object.GetKind() == "Deployment" || i.Object.GetKind() == "DaemonSet"
	}

	out := b.removals(func(i storedItem) bool { return removed(i) && workload(i) })
	for n := range out {
		if r, ok := out[n].(removeObject); ok && (r.ref.Name == componentCraned || r.ref.Name == componentAgent) {
			out[n] = removeStopped{r}
		}
	}

	return append(out, b.removals(func(i storedItem) bool { return removed(i) && !workload(i) })...)
}
