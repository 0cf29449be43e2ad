// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"crane.io/crane/internal/dashboard/contract"
)

// TestHostileAgentEvents checks that events which a tenant writes in the name of the agent are neither those of a node nor push out those of others.
func TestHostileAgentEvents(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	builder := fake.NewClientBuilder().WithIndex(&corev1.Event{}, "source", func(o client.Object) []string {
		e, _ := o.(*corev1.Event)
		return []string{e.Source.Component}
	})
	add := func(namespace, name, kind, object string, at time.Time) {
		involved := corev1.ObjectReference{Kind: kind, Name: object}
		if kind != "Node" {
			involved.Namespace = namespace
		}

		builder.WithObjects(&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name},
			Source:         corev1.EventSource{Component: agentComponent, Host: "worker-1"},
			InvolvedObject: involved,
			Reason:         "Evicted",
			Message:        name,
			LastTimestamp:  metav1.NewTime(at),
		})
	}

	add("default", "of-the-node", "Node", "worker-1", begin)
	add("default", "of-another-node", "Node", "worker-2", begin)
	add("shop", "of-a-pod", "Pod", "web-0", begin)
	add("evil", "of-a-config-map", "ConfigMap", "worker-1", begin.Add(time.Hour))
	for i := range 2 * maxNodeEvents {
		add("evil", fmt.Sprintf("flood-%d", i), "Pod", "web-0", begin.Add(time.Hour))
	}

	node := &contract.Node{Name: "worker-1"}
	details := nodeDetails{client: builder.Build(), out: &contract.NodeList{}, index: map[string]*contract.Node{"worker-1": node}}
	details.readEvents(t.Context())

	var texts []string
	for _, e := range node.Events {
		texts = append(texts, e.Text)
	}

	all := strings.Join(texts, "\n")
	for _, want := range []string{"of-the-node", "shop/web-0: of-a-pod"} {
		if !strings.Contains(all, want) {
			t.Errorf("the node has the events %q, want %q beside a flood", texts, want)
		}
	}
	if strings.Contains(all, "of-another-node") || strings.Contains(all, "of-a-config-map") {
		t.Errorf("the node has the events %q, want those of this node and of pods alone", texts)
	}
	if n := strings.Count(all, "evil/web-0: "); n != maxNamespaceEvents || len(details.out.Notes) > 0 {
		t.Errorf("the node has %d events of one namespace, notes %q, want %d and no note", n, details.out.Notes, maxNamespaceEvents)
	}
}
