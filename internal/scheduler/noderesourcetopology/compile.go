// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/pkg/numa"
)

// compiled is a NodeResourceTopology prepared for scheduling, once per change.
type compiled struct {
	// managed means that Crane's agent assigns CPUs on the node. Otherwise the kubelet manages zones.
	managed bool
	// singleZone is the node's policy for pods without their own.
	singleZone bool
	zones      []numa.Zone
	empty      *numa.Node // these zones without any assignment
}

// spreads returns 1 if pods may spread over zones of the node by its policy, else 0. A nil topology is unknown.
func (c *compiled) spreads() int64 {
	if c == nil || !c.managed || c.singleZone || !c.empty.HasZones() {
		return 0
	}

	return 1
}

// compile parses t. On an error the zones of the node count as unknown.
func compile(t *topology.NodeResourceTopology) (*compiled, error) {
	c := &compiled{
		managed:    t.CraneManagerPolicy.CPUManagerPolicy == topology.CPUManagerPolicyStatic,
		singleZone: t.CraneManagerPolicy.TopologyManagerPolicy != topology.TopologyManagerPolicyNone,
	}

	zones, err := topologyconv.ReadZones(t)
	if err != nil {
		return nil, err
	}

	c.zones = zones
	c.empty = &numa.Node{}
	if err := c.empty.SetZones(c.zones); err != nil {
		return nil, err
	}

	return c, nil
}
