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

	"crane.io/crane/pkg/nodeload"
)

const (
	// PolicyConfigMap is the ConfigMap of the policy in config/; events about the policy as a whole refer to it.
	PolicyConfigMap = "crane-node-load-policy"
	// maxNodeEvents is the number of nodes with the same new problem that get an event each in a round; more nodes
	// share one event on the policy.
	maxNodeEvents = 5
)

// Reasons of events.
const (
	reasonQueryFailed = "LoadNotRead"
	reasonNoValue     = "LoadUnknown"
	reasonUndated     = "SampleTimeUnknown"
)

// eventAction is the action of an event about a metric. Events that differ in their text only are counted instead of
// written, so each metric needs its own action.
func eventAction(metric string) string { return "Read/" + metric }

// problemKey identifies the subject of a problem.
type problemKey struct{ node, metric string }

// policyReference is the object of events about the policy as a whole.
func policyReference(namespace string) runtime.Object {
	return &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Namespace:  namespace,
		Name:       PolicyConfigMap,
	}
}

func (c *Controller) regarding() runtime.Object { return policyReference(c.cfg.Namespace) }

// truncateNote cuts a text to the maximum length of an event note.
func truncateNote(text string) string {
	const maxLength = 1000
	if len(text) > maxLength {
		return strings.ToValidUTF8(text[:maxLength], "") + "..."
	}

	return text
}

// record updates schedule and metrics from readings and reports new problems in events.
func (c *Controller) record(ctx context.Context, nodes []node, readings []reading, now time.Time) {
	log := ctrl.LoggerFrom(ctx).WithName("nodeload")
	for k := range readings {
		r := &readings[k]
		m := c.policy.Metrics[r.metric]
		if r.err != nil {
			c.cfg.Metrics.queried(m.Name, "failed")
			if c.schedule.failed(m, now) {
				log.Error(r.err, "reading a metric, existing annotations expire", "metric", m.Name)
				c.cfg.Events.Eventf(c.regarding(), nil, corev1.EventTypeWarning, reasonQueryFailed, eventAction(m.Name), "%s", truncateNote(m.Name+": "+r.err.Error()))
			}

			continue
		}

		c.cfg.Metrics.queried(m.Name, "succeeded")
		c.schedule.succeeded(m, now)
		c.reportProblems(ctx, m.Name, nodes, r)
		c.reportUndated(ctx, m.Name, r)
	}

	c.forgetNodes(nodes)
}

// reportProblems counts the problems of a metric and reports new ones.
func (c *Controller) reportProblems(ctx context.Context, metric string, nodes []node, r *reading) {
	counts := map[problem]int{}
	newProblems := map[problem][]int{}
	for i := range nodes {
		key := problemKey{nodes[i].name, metric}
		issue := r.problems[i]
		counts[issue]++

		if issue == "" {
			delete(c.reportedProblems, key)
			continue
		}

		// A problem is reported when it begins, not in each round.
		if c.reportedProblems[key] != issue {
			c.reportedProblems[key] = issue
			newProblems[issue] = append(newProblems[issue], i)
		}
	}

	c.cfg.Metrics.recordReading(metric, counts, r.unmatched)
	for issue, list := range newProblems {
		if len(list) <= maxNodeEvents {
			for _, i := range list {
				c.cfg.Events.Eventf(nodeReference(&nodes[i]), nil, corev1.EventTypeWarning, reasonNoValue, eventAction(metric),
					"%s: %s; its annotation expires", metric, issue)
			}
			continue
		}

		// One event about all nodes, because the cause is rather the source than the nodes.
		names := make([]string, maxNodeEvents)
		for k := range names {
			names[k] = nodes[list[k]].name
		}

		text := fmt.Sprintf("%s: %s for %d of %d nodes, such as %s; %d series matched no node",
			metric, issue, len(list), len(nodes), strings.Join(names, ", "), r.unmatched)
		ctrl.LoggerFrom(ctx).WithName("nodeload").Info("nodes have no value", "metric", metric, "reason", text)
		c.cfg.Events.Eventf(c.regarding(), nil, corev1.EventTypeWarning, reasonNoValue, eventAction(metric), "%s", truncateNote(text))
	}
}

// reportUndated reports that the sample times of a metric have become unknown.
func (c *Controller) reportUndated(ctx context.Context, metric string, r *reading) {
	c.cfg.Metrics.undated(metric, r.undated != "")
	if r.undated == "" || c.reportedUndated[metric] {
		if r.undated == "" {
			delete(c.reportedUndated, metric)
		}

		return
	}

	c.reportedUndated[metric] = true
	text := fmt.Sprintf("%s: the times of its samples are unknown, so that its values expire %s earlier: %s; "+
		"install the rules of config/nodeload/recording-rules.yaml or set sampleTime", metric, nodeload.UndatedAge, r.undated)
	ctrl.LoggerFrom(ctx).WithName("nodeload").Info("sample times are unknown", "metric", metric, "reason", text)
	c.cfg.Events.Eventf(c.regarding(), nil, corev1.EventTypeWarning, reasonUndated, eventAction(metric), "%s", truncateNote(text))
}

// forgetNodes drops the reported problems of deleted nodes.
func (c *Controller) forgetNodes(nodes []node) {
	if len(c.reportedProblems) == 0 {
		return
	}

	present := make(map[string]bool, len(nodes))
	for i := range nodes {
		present[nodes[i].name] = true
	}

	for key := range c.reportedProblems {
		if !present[key.node] {
			delete(c.reportedProblems, key)
		}
	}
}

func nodeReference(n *node) runtime.Object {
	return &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Node",
		Name:       n.name,
		UID:        n.uid,
	}
}
