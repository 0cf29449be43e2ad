// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeevents "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
)

const (
	// ReasonLoadAvoided is the reason of the event on a pod that was placed while nodes were closed for it.
	ReasonLoadAvoided = "LoadAvoided"
	actionScheduling  = "Scheduling"
	// eventPeriod is the mean interval of events, eventBurst the maximum burst. An event costs the API server a
	// write, like a placement; the explain endpoint has all attempts.
	eventPeriod = time.Second
	eventBurst  = 10
)

// recorder writes events; it is part of the framework's recorder.
type recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// events reports pods that were placed while nodes were closed for them, at a bounded rate. The scheduler itself
// reports pods that were not placed, with the plugin's reasons.
type events struct {
	recorder recorder // nil for none
	clock    clock.PassiveClock
	dropped  func()

	mu     sync.Mutex
	tokens float64   // guarded by mu
	filled time.Time // guarded by mu
}

func newEvents(r recorder, clk clock.PassiveClock, dropped func()) *events {
	return &events{recorder: r, clock: clk, dropped: dropped}
}

// newRecorder returns nil if the framework has no recorder: an interface that holds a nil is not nil.
func newRecorder(r kubeevents.EventRecorder) recorder {
	if r == nil {
		return nil
	}

	return r
}

// policyReference is the object of events about the policy file: its ConfigMap in config/.
func policyReference() runtime.Object {
	return &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Namespace:  "crane-system",
		Name:       "crane-node-load-policy",
	}
}

func (e *events) placed(pod *corev1.Pod, c *cycle, node string) {
	closed := c.attempt.closed.Load()
	if e.recorder == nil || closed == 0 {
		return
	}
	if !e.allow() {
		e.dropped()
		return
	}

	e.recorder.Eventf(pod, nil, corev1.EventTypeNormal, ReasonLoadAvoided, actionScheduling, "%s", c.note(closed, node))
}

func (c *cycle) note(closed int32, node string) string {
	return fmt.Sprintf("%d of %d nodes had too much load for this pod, which is expected to use %dm CPU and %d MiB; placed on %s",
		closed, c.size, c.use.CPU, c.use.Memory>>20, node)
}

func (e *events) allow() bool {
	e.mu.Lock()
	defer e.mu.Unlock()

	now := e.clock.Now()
	if e.filled.IsZero() {
		e.tokens = eventBurst
	}

	e.tokens = min(e.tokens+float64(now.Sub(e.filled))/float64(eventPeriod), eventBurst)
	e.filled = now
	if e.tokens < 1 {
		return false
	}

	e.tokens--
	return true
}
