// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/testbed/simnode/kubelet"
)

// sample measures all nodes at each tick.
func (f *Fleet) sample(ctx context.Context) {
	ticker := f.config.Clock.NewTicker(f.config.Sample)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			f.measure()
		}
	}
}

func (f *Fleet) measure() {
	for _, m := range f.order {
		m.mu.Lock()
		if m.down {
			m.mu.Unlock()
			continue
		}
		before, _ := m.node.Pressure()
		m.node.Measure(f.config.Load, f.config.Clock.Now())
		after, _ := m.node.Pressure()
		if before != after {
			m.reported = time.Time{}
			f.beats.Add(m.spec.Name)
		}
		dirty, events := m.node.Dirty(), m.node.Events()
		m.mu.Unlock()
		f.enqueue(dirty)
		f.recordEvents(m, events)
	}
}

// recordEvents writes events about pods and about the node itself.
func (f *Fleet) recordEvents(m *member, events []kubelet.Event) {
	for _, e := range events {
		if e.Pod != nil {
			m.recorder.Event(e.Pod, e.Type, e.Reason, e.Message)
			continue
		}
		ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: m.spec.Name, UID: types.UID(m.spec.Name)}
		m.recorder.Event(ref, e.Type, e.Reason, e.Message)
	}
}
