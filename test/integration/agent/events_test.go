// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// TestRepeatedEvent checks that the agent's recorder counts a repeated event in the event of the first time, with the agent's permissions. The
// agent itself repeats an event after a minute at the earliest.
func TestRepeatedEvent(t *testing.T) {
	config, err := control.ConfigFor(t.Context(), controlplane.ServiceAccount("crane-system", "crane-agent"))
	if err != nil {
		t.Fatal(err)
	}

	config.UserAgent = "crane-agent" // as the process has it
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	c := newClient(t)
	node := newNode("repeats")
	harness.Create(t, c, node)

	recorder, end := report.NewRecorder(t.Context(), clients, node.Name)
	for range 3 {
		recorder.Event(&corev1.ObjectReference{Kind: "Node", Name: node.Name, UID: node.UID}, corev1.EventTypeWarning, "Repeated", "the same")
	}

	eventually(t, "one event counts all", func(ctx context.Context) error {
		var list corev1.EventList
		if err := c.List(ctx, &list, client.MatchingFields{"involvedObject.name": node.Name, "reason": "Repeated"}); err != nil {
			return err
		}

		if len(list.Items) != 1 || list.Items[0].Count != 3 {
			return fmt.Errorf("events %+v", list.Items)
		}

		return nil
	})

	end(t.Context())
}
