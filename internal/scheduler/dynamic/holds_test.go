// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"testing"
	"time"

	"crane.io/crane/pkg/nodeload"
)

// TestHolds checks that load held for the replacement of an evicted pod counts for other pods until the hold ends or a
// pod of its workload is tried, and that it does not return while the annotation is still there.
func TestHolds(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("a", loadAnnotations(0.3, 0.3, start())))
	annotated := func(measured time.Time, holds ...nodeload.Hold) {
		t.Helper()

		annotations := loadAnnotations(0.3, 0.3, measured)
		if len(holds) > 0 {
			text, err := nodeload.FormatHolds(holds)
			if err != nil {
				t.Fatalf("FormatHolds: %v, want no error", err)
			}

			annotations[nodeload.HoldsKey] = text
		}

		node := newNode("a", annotations)
		b.replace(node)
		b.NodeChanged(node)
	}

	heldCPU := func() float64 { return float64(b.entry("a").view.Load().Loads[0].OnWay) }
	newHold := func(name string) nodeload.Hold {
		return nodeload.Hold{Pod: "uid-" + name, Workload: "shop/ReplicaSet/" + name, CPU: 2000, Memory: 1 << 30, Until: start().Add(time.Minute)}
	}

	annotated(start(), newHold("web"), newHold("db"))
	if got := heldCPU(); got < 0.399 || got > 0.401 {
		t.Fatalf("two holds of two of ten cores add %v, want 0.4", got)
	}

	b.schedule(newPod("other", "1", "1Gi"))
	b.schedule(owned(newPod("job", "1", "1Gi"), "ReplicaSet", "job"))

	if got := heldCPU(); got < 0.399 {
		t.Errorf("after pods of other workloads %v is held, want 0.4", got)
	}

	b.schedule(owned(newPod("web-2", "2", "1Gi"), "ReplicaSet", "web"))
	if got := heldCPU(); got < 0.199 || got > 0.201 {
		t.Errorf("after the replacement was tried %v is held, want 0.2", got)
	}

	annotated(start().Add(time.Second), newHold("web"), newHold("db"))
	if got := heldCPU(); got < 0.199 || got > 0.201 {
		t.Errorf("after the released hold was read again %v is held, want 0.2", got)
	}

	b.clock.Step(2 * time.Minute)
	node := newNode("a", loadAnnotations(0.3, 0.3, start()))
	if got := b.entry("a").preview(&b.reader, node, b.rules.Load(), b.clock.Now()).Loads[0].OnWay; got != 0 {
		t.Errorf("preview after the end of the holds = %v on its way, want 0", got)
	}

	annotated(start().Add(2*time.Second), newHold("web"), newHold("db"))
	if got := heldCPU(); got != 0 || b.reader.holds.size.Load() != 0 {
		t.Errorf("after its end %v is held, %d are indexed, want 0 and 0", got, b.reader.holds.size.Load())
	}

	late := newHold("web")
	late.Until = start().Add(24 * time.Hour)
	annotated(start().Add(3*time.Second), late)

	if got := heldCPU(); got != 0 {
		t.Errorf("with a hold of a day %v is held, want 0", got)
	}

	node.Annotations[nodeload.HoldsKey] = `[{"pod":"x","workload":"y","cpu":-1}]`
	b.NodeChanged(node)

	if got := heldCPU(); got != 0 {
		t.Errorf("with an invalid annotation %v is held, want 0", got)
	}
}
