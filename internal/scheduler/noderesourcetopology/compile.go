// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/pkg/numa"
)

// compiled is what scheduling needs of a NodeResourceTopology, made once for each change of it.
type compiled struct {
	// managed says that Crane's agent assigns CPUs on the node. Where the kubelet does, zones are its business.
	managed bool
	// singleZone is the node's policy for pods that say nothing themselves.
	singleZone bool
	zones      []numa.Zone
	empty      *numa.Node // with these zones, where nobody holds anything
}

// compile reads t. The error names what cannot be; the node then counts as one whose zones are not known.
func compile(t *topology.NodeResourceTopology) (*compiled, error) {
	c := &compiled{
		managed:    t.CraneManagerPolicy.CPUManagerPolicy == topology.CPUManagerPolicyStatic,
		singleZone: t.CraneManagerPolicy.TopologyManagerPolicy != topology.TopologyManagerPolicyNone,
	}
	var err error
	if c.zones, err = topologyconv.ReadZones(t); err != nil {
		return nil, err
	}
	c.empty = &numa.Node{}
	if err := c.empty.SetZones(c.zones); err != nil {
		return nil, err
	}
	return c, nil
}
