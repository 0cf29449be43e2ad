// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// PolicyConfigMap is the ConfigMap that config/ makes of the policy; events about the policy as a whole are told on it.
	PolicyConfigMap = "crane-node-load-policy"
	// eventsEach is how many nodes with the same new problem get an event of their own in a round; of more than that one
	// event on the policy tells.
	eventsEach = 5
)

// Reasons of events.
const (
	reasonQueryFailed = "LoadNotRead"
	reasonNoValue     = "LoadUnknown"
)

// actionOn is the action of an event about a metric. Events that differ by their text alone are counted and not written, so
// that each metric needs an action of its own.
func actionOn(metric string) string { return "Read/" + metric }

// complaint names what a problem is about.
type complaint struct{ node, metric string }

// regarding is what events about the policy as a whole are about.
func regarding(namespace string) runtime.Object {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: PolicyConfigMap}
}

func (c *Controller) regarding() runtime.Object { return regarding(c.cfg.Namespace) }

// note cuts a text to what an event takes.
func note(text string) string {
	const most = 1000
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// note takes readings into the schedule, the metrics and, where something is new, events.
func (c *Controller) note(ctx context.Context, nodes []node, readings []reading, now time.Time) {
	log := ctrl.LoggerFrom(ctx).WithName("nodeload")
	for k := range readings {
		r := &readings[k]
		m := c.policy.Metrics[r.metric]
		if r.err != nil {
			c.cfg.Metrics.queried(m.Name, "failed")
			if c.schedule.failed(m, now) {
				log.Error(r.err, "A metric was not read; what nodes carry is left to age", "metric", m.Name)
				c.cfg.Events.Eventf(c.regarding(), nil, corev1.EventTypeWarning, reasonQueryFailed, actionOn(m.Name), "%s", note(m.Name+": "+r.err.Error()))
			}
			continue
		}
		c.cfg.Metrics.queried(m.Name, "succeeded")
		c.schedule.succeeded(m, now)
		c.tell(ctx, m.Name, nodes, r)
	}
	c.forget(nodes)
}

// tell counts the problems of a metric and tells those that are new.
func (c *Controller) tell(ctx context.Context, metric string, nodes []node, r *reading) {
	counts := map[problem]int{}
	fresh := map[problem][]int{}
	for i := range nodes {
		about, what := complaint{nodes[i].name, metric}, r.problems[i]
		counts[what]++
		if what == "" {
			delete(c.told, about)
			continue
		}
		if c.told[about] != what {
			c.told[about] = what
			fresh[what] = append(fresh[what], i)
		}
	}
	c.cfg.Metrics.found(metric, counts, r.unmatched)
	for what, list := range fresh {
		if len(list) <= eventsEach {
			for _, i := range list {
				c.cfg.Events.Eventf(nodeReference(&nodes[i]), nil, corev1.EventTypeWarning, reasonNoValue, actionOn(metric),
					"%s: %s; what the node carries is left to age", metric, what)
			}
			continue
		}
		names := make([]string, eventsEach)
		for k := range names {
			names[k] = nodes[list[k]].name
		}
		text := fmt.Sprintf("%s: %s for %d of %d nodes, such as %s; %d series matched no node",
			metric, what, len(list), len(nodes), strings.Join(names, ", "), r.unmatched)
		ctrl.LoggerFrom(ctx).WithName("nodeload").Info(text)
		c.cfg.Events.Eventf(c.regarding(), nil, corev1.EventTypeWarning, reasonNoValue, actionOn(metric), "%s", note(text))
	}
}

// forget drops what was told of nodes that are gone.
func (c *Controller) forget(nodes []node) {
	if len(c.told) == 0 {
		return
	}
	there := make(map[string]bool, len(nodes))
	for i := range nodes {
		there[nodes[i].name] = true
	}
	for about := range c.told {
		if !there[about.node] {
			delete(c.told, about)
		}
	}
}

func nodeReference(n *node) runtime.Object {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.name, UID: n.uid}
}
