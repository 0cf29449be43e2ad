// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/metrics"
)

func newNode(name string, addresses ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}

	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.9"})
	return n
}

func TestSeriesFindTheirNodes(t *testing.T) {
	nodes := []corev1.Node{
		newNode("a", "10.0.0.1", "fd00::1"), newNode("b.example", "10.0.0.11"), newNode("c"), newNode("d", "10.0.0.5", "no address"), newNode("e", "10.0.0.5"),
	}

	m := newMatcher(nodes, []string{"node", "instance"})
	for name, test := range map[string]struct {
		labels metrics.Labels
		want   string
	}{
		"name":                       {metrics.Labels{"instance": "a"}, "a"},
		"name with port":             {metrics.Labels{"instance": "b.example:9100"}, "b.example"},
		"v4":                         {metrics.Labels{"instance": "10.0.0.1"}, "a"},
		"v4 with port":               {metrics.Labels{"instance": "10.0.0.1:9100"}, "a"},
		"dots are dots":              {metrics.Labels{"instance": "10x0.0.1"}, ""},
		"no prefix of another":       {metrics.Labels{"instance": "10.0.0.11:9100"}, "b.example"},
		"v6":                         {metrics.Labels{"instance": "fd00::1"}, "a"},
		"v6 in another form":         {metrics.Labels{"instance": "[fd00:0:0::1]:9100"}, "a"},
		"v6 in brackets":             {metrics.Labels{"instance": "[fd00::1]"}, "a"},
		"v4 as v6":                   {metrics.Labels{"instance": "[::ffff:10.0.0.1]:9100"}, "a"},
		"the configured label first": {metrics.Labels{"node": "c", "instance": "10.0.0.1:9100"}, "c"},
		"a label that says nothing":  {metrics.Labels{"node": "exporter-xyz", "instance": "10.0.0.1:9100"}, "a"},
		"an address of two":          {metrics.Labels{"instance": "10.0.0.5:9100"}, ""},
		"an external address":        {metrics.Labels{"instance": "203.0.113.9:9100"}, ""},
		"another label":              {metrics.Labels{"pod": "a"}, ""},
		"none":                       {nil, ""},
	} {
		got := ""
		if i, ok := m.find(test.labels); ok {
			got = nodes[i].Name
		}
		if got != test.want {
			t.Errorf("%s: find(%v) = %q, want %q", name, test.labels, got, test.want)
		}
	}
}
