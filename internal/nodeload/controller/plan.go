// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// patch is the change of one node.
type patch struct {
	node        int
	annotations map[string]string
	causes      []nodeload.Cause
}

// planner decides what a round writes. It has no side effects.
type planner struct {
	policy   *nodeload.Policy
	format   nodeload.Format
	material units.Ratio
	now      time.Time
	// interval is the time to the next update of hot values.
	interval time.Duration
}

// plan compares the readings, and the hot values if hot is not nil, with the annotations of the nodes. A node that
// needs a write for one value gets all values that were read, which saves later writes.
func (p *planner) plan(nodes []node, readings []reading, hot func(node string) int64) []patch {
	writings := make([]nodeload.ChangeDetector, len(readings))
	for i, r := range readings {
		if r.err != nil {
			continue
		}

		m := p.policy.Metrics[r.metric]
		writings[i] = nodeload.ChangeDetector{
			MinChange:  p.material,
			Thresholds: p.policy.Thresholds(r.metric),
			Evict:      p.policy.EvictMark(r.metric),
			Active:     m.Active(),
			Period:     m.Period,
		}
	}

	var out []patch
	for i := range nodes {
		change := patch{node: i}
		for k := range readings {
			r := &readings[k]
			if r.err != nil || r.problems[i] != "" {
				continue
			}

			if cause := writings[k].WriteCause(p.currentSample(&nodes[i], p.policy.Metrics[r.metric].Name), r.samples[i], p.now); cause != "" {
				change.causes = append(change.causes, cause)
			}
		}

		if hot != nil {
			p.planHot(&nodes[i], hot(nodes[i].name), &change)
		}

		if len(change.causes) == 0 {
			continue
		}

		// The node is written anyway, so that newer values below the thresholds are written as well.
		for k := range readings {
			r := &readings[k]
			if r.err == nil && r.problems[i] == "" && p.newer(&nodes[i], r, i) {
				change.set(p.policy.Metrics[r.metric].Name, p.format.Load(r.samples[i]))
			}
		}

		out = append(out, change)
	}

	return out
}

// planHot adds the hot value if it is due, or if the node is written anyway and has one.
func (p *planner) planHot(n *node, want int64, change *patch) {
	text, present := n.annotations[nodeload.HotValueKey]
	current, err := p.format.ParseHot(text)
	if err != nil {
		current = nodeload.Hot{}
	}

	cause := nodeload.HotCause(current, want, p.now, p.interval)
	if cause != "" {
		change.causes = append(change.causes, cause)
	}
	if cause != "" || len(change.causes) > 0 && (present || want > 0) {
		change.set(nodeload.HotValueKey, p.format.Hot(nodeload.Hot{Value: want, Time: p.now}))
	}
}

func (p *patch) set(key, value string) {
	if p.annotations == nil {
		p.annotations = map[string]string{}
	}
	p.annotations[key] = value
}

// currentSample returns the sample in the node's annotation; zero if it cannot be read.
func (p *planner) currentSample(n *node, metric string) nodeload.Sample {
	text, ok := n.annotations[metric]
	if !ok {
		return nodeload.Sample{}
	}

	s, err := p.format.ParseLoad(text)
	if err != nil {
		return nodeload.Sample{}
	}

	return s
}

// newer reports whether a reading is newer than the node's annotation, or the annotation is not valid.
func (p *planner) newer(n *node, r *reading, i int) bool {
	m := p.policy.Metrics[r.metric]
	old := p.currentSample(n, m.Name)
	return old.StateAt(p.now, m.Active()) != nodeload.Fresh || r.samples[i].Time.After(old.Time)
}
