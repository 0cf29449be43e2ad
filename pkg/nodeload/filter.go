// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import "crane.io/crane/pkg/series"

// Open is what Closed returns where no limit closes the node.
const Open = -1

// Closed tells by which limit (an index in Policy.Limits) the node is closed for a pod that will use so much, or Open. It
// is closed if by a metric
//
//	load + load on its way + min(incoming, limit/2) > limit.
//
// The pod's own part counts up to half the limit, so that a pod that is large beside a node finds a place on any that is
// half as loaded as it may be: without that it would wait for ever where requests have room for it.
//
// A metric that is not fresh on the node closes nothing; unknown tells that there was one. now is in nanoseconds since
// 1970. The node must have been made by the rules of the fleet.
func (f *Fleet) Closed(n *Node, use Amount, now int64) (limit int, unknown bool) {
	for _, i := range f.limits {
		l := &f.Rules.Policy.Limits[i]
		load := &n.Loads[l.Metric]
		if now < load.from || now > load.until {
			unknown = true
			continue
		}
		if load.Value+load.OnWay+load.raised(counted(n.share(l.Metric, use), l.Max)) > l.Max {
			return i, unknown
		}
	}
	return Open, unknown
}

func counted(incoming, limit series.Ratio) series.Ratio { return min(incoming, limit/2) }

// Counted is what of a pod's use counts against a limit on the node.
func (f *Fleet) Counted(n *Node, use Amount, limit int) series.Ratio {
	l := f.Rules.Policy.Limits[limit]
	return n.Loads[l.Metric].raised(counted(n.share(l.Metric, use), l.Max))
}
