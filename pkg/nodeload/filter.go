// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import "crane.io/crane/pkg/series"

// Open is the result of Closed if no limit excludes the node.
const Open = -1

// Closed returns the limit (an index in Policy.Limits) that excludes the node for a pod with the given expected
// usage, or Open. A node is excluded if for a metric
//
//	load + pending load + min(incoming, limit/2) > limit.
//
// The pod itself counts up to half of the limit, so that a pod that is large compared with the node fits on any node
// that is half as loaded as allowed; otherwise it would stay pending although its requests fit.
//
// A metric that is not fresh on the node excludes nothing; unknown reports that there was one. now is in nanoseconds
// since 1970. The node must have been created by the rules of the fleet.
func (f *Fleet) Closed(n *Node, use Amount, now int64) (limit int, unknown bool) {
	for _, i := range f.limits {
		l := &f.Rules.Policy.Limits[i]
		load := &n.Loads[l.Metric]
		if now < load.from || now > load.until {
			unknown = true
			continue
		}
		if load.Value+load.OnWay+load.increase(counted(n.share(l.Metric, use), l.Max)) > l.Max {
			return i, unknown
		}
	}
	return Open, unknown
}

func counted(incoming, limit series.Ratio) series.Ratio { return min(incoming, limit/2) }

// Counted returns the part of a pod's usage that counts against a limit on the node.
func (f *Fleet) Counted(n *Node, use Amount, limit int) series.Ratio {
	l := f.Rules.Policy.Limits[limit]
	return n.Loads[l.Metric].increase(counted(n.share(l.Metric, use), l.Max))
}
