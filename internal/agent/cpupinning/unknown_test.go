// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
)

func TestUnknown(t *testing.T) {
	b := newFixture(t, false)
	b.runPod("web", "node0=2", 2)
	b.advance()
	state := b.readFile(filepath.Join(b.dir, StateFile))
	b.startAgent()
	b.state = &cluster.State{}
	b.advance()

	if b.readFile(filepath.Join(b.dir, StateFile)) != state || b.cpus("web", "a") != "0-7" || !b.reported("until the node's pods are known") {
		t.Errorf("before pods are known CPUs are %q, log %v; want them and the state unchanged", b.cpus("web", "a"), b.log)
	}

	b.invalidateState()
	b.advance()
	b.expectCPUs("known", "web/a=0-1")
	facts := b.topology
	b.topology = nil
	b.advance()
	b.expectCPUs("topology unknown", "web/a=0-1")

	if s := b.Status(); s.Active || !strings.Contains(s.Reason, "until the node's topology is known") {
		t.Errorf("Status() = %+v, want inactive: the topology is unknown", s)
	}

	// What cannot be read any more takes no CPUs either.
	b.topology = facts
	b.advance()
	b.expectCPUs("known again", "web/a=0-1")
}

// TestHandoverWhileUnknown checks that an agent that takes over keeps the CPUs of containers, and counts them as exclusive, while it knows
// neither the topology nor the pods, as without an API server.
func TestHandoverWhileUnknown(t *testing.T) {
	for _, unknown := range []string{"topology", "pods", "topology and pods"} {
		b := newFixture(t, false)
		b.runPod("web", "node0=2", 2)
		b.runPod("other", "", 0)
		b.advance()
		b.expectCPUs("assigned", "web/a=0-1", "other/a=2-7")

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b.config.Keep = func() bool { return true }
		if err := b.Run(ctx); err != nil {
			t.Fatal(err)
		}

		// The next agent has the journal of its predecessor and knows nothing else.
		journal, err := act.OpenJournal(filepath.Join(b.dir, "changes.json"), b.layout, b)
		if err != nil {
			t.Fatal(err)
		}

		c := b.config
		c.Journal, c.Keep = journal, nil
		facts := b.topology
		if strings.Contains(unknown, "topology") {
			b.topology = nil
		}
		if strings.Contains(unknown, "pods") {
			b.state = &cluster.State{}
		}

		next := NewManager(c)
		t.Cleanup(next.tree.Close)
		for range 3 {
			b.clock.Step(DefaultPeriod)
			next.Reconcile()
		}

		b.expectCPUs(unknown+" unknown", "web/a=0-1", "other/a=2-7")
		if cpus, ok := next.ExclusiveCPUs(); !ok || cpus.String() != "0-1" {
			t.Errorf("%s unknown: ExclusiveCPUs() = %s, %t, want 0-1", unknown, cpus, ok)
		}

		b.topology = facts
		b.invalidateState()
		next.Reconcile()
		b.expectCPUs(unknown+" known", "web/a=0-1", "other/a=2-7")
		if s := next.Status(); !s.Active {
			t.Errorf("%s known: Status() = %+v, want active", unknown, s)
		}
	}
}
