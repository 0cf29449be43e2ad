// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/units"
)

// node is the part of a Node that a round needs. Its annotations are those of the cached object and must not be
// changed.
type node struct {
	name        string
	uid         types.UID
	annotations map[string]string
	// capacity is in cores and bytes.
	capacity map[units.Resource]float64
}

func nodeOf(n *corev1.Node) node {
	return node{
		name:        n.Name,
		uid:         n.UID,
		annotations: n.Annotations,
		capacity: map[units.Resource]float64{
			units.CPU:    n.Status.Capacity.Cpu().AsApproximateFloat64(),
			units.Memory: n.Status.Capacity.Memory().AsApproximateFloat64(),
		},
	}
}

// matcher finds the node of a series.
type matcher struct {
	labels []string
	byName map[string]int
	byIP   map[netip.Addr]int
}

// ambiguous marks an address of several nodes.
const ambiguous = -1

// newMatcher indexes nodes by name and internal addresses. labels are in order of preference.
func newMatcher(nodes []corev1.Node, labels []string) *matcher {
	m := &matcher{labels: labels, byName: make(map[string]int, len(nodes)), byIP: make(map[netip.Addr]int, len(nodes))}
	for i := range nodes {
		m.byName[nodes[i].Name] = i
		for _, a := range nodes[i].Status.Addresses {
			if a.Type != corev1.NodeInternalIP {
				continue
			}

			ip, err := netip.ParseAddr(a.Address)
			if err != nil {
				continue
			}

			key := canonical(ip)
			if other, ok := m.byIP[key]; ok && other != i {
				m.byIP[key] = ambiguous // An address that is reassigned may belong to two nodes for a while.
				continue
			}

			m.byIP[key] = i
		}
	}

	return m
}

func canonical(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// find returns the index of the node that one of the labels names.
func (m *matcher) find(labels metrics.Labels) (int, bool) {
	for _, name := range m.labels {
		if value := labels[name]; value != "" {
			if i, ok := m.findValue(value); ok {
				return i, true
			}
		}
	}

	return 0, false
}

// findValue finds a node by name or address (v4, or v6 with or without brackets), each with or without a port.
func (m *matcher) findValue(value string) (int, bool) {
	if i, ok := m.lookUp(value); ok {
		return i, true
	}

	if host, _, err := net.SplitHostPort(value); err == nil {
		return m.lookUp(host)
	}

	return m.lookUp(strings.TrimSuffix(strings.TrimPrefix(value, "["), "]"))
}

func (m *matcher) lookUp(value string) (int, bool) {
	if i, ok := m.byName[value]; ok {
		return i, true
	}

	if ip, err := netip.ParseAddr(value); err == nil {
		if i, ok := m.byIP[canonical(ip)]; ok && i != ambiguous {
			return i, true
		}
	}

	return 0, false
}
