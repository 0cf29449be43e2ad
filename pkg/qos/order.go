// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"slices"
	"time"
)

// rank returns the position of a QoS class among victims.
func (c Class) rank() int {
	switch c {
	case BestEffort:
		return 0
	case Burstable:
		return 1
	}
	return 2
}

// orderedVictims returns the pods an action may be taken on, the first victim first: pods on reclaimed capacity, lower priority, lower QoS
// class, larger use, younger, then by name for a stable order.
func orderedVictims(o *Observation, action string, by Criterion) []*Pod {
	var out []*Pod
	for i := range o.Pods {
		if p := &o.Pods[i]; slices.Contains(p.Allowed, action) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *Pod) int {
		return cmp.Or(
			trueFirst(a.Elastic, b.Elastic),
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.Class.rank(), b.Class.rank()),
			cmp.Compare(by.value(b), by.value(a)),
			b.Started.Compare(a.Started),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID),
		)
	})
	return out
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// describe returns the properties by which a pod was chosen.
func (p *Pod) describe(now time.Time) string {
	kind := string(p.Class)
	if p.Elastic {
		kind = "elastic, " + kind
	}
	text := kind + ", priority " + itoa(p.Priority)
	if !p.Started.IsZero() {
		text += ", runs for " + now.Sub(p.Started).Truncate(time.Second).String()
	}
	return text
}
