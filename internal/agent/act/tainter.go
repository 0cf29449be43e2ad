// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
)

const (
	// compareInterval is how often the node is compared with what is wanted, from what a watch knows: somebody may have changed it.
	compareInterval = 5 * time.Second
	// taintTimeout bounds the requests of one comparison.
	taintTimeout = 10 * time.Second
	// minRetry and maxRetry bound the pause after a write that failed.
	minRetry, maxRetry = time.Second, 30 * time.Second
)

// TainterConfig is what a Tainter needs.
type TainterConfig struct {
	// Name is the node's.
	Name  string
	Nodes typedcorev1.NodeInterface
	// Node is what a watch knows of the node; nil where it is not known.
	Node  func() *corev1.Node
	Clock clock.WithTicker
	Log   logr.Logger
	// Beat is called after each comparison.
	Beat func(step string)
	// Report is called when the taint was set or taken away, or could not be; it may be nil.
	Report func(TaintOutcome)
}

// TaintOutcome is how it went to keep new pods away or to welcome them again.
type TaintOutcome struct {
	// Avoided tells which.
	Avoided bool
	Reason  string
	Err     error
}

// Tainter keeps new pods away from the node by a taint, and says why in a condition of it. It works beside the loop: the latest wish
// wins, and one that cannot be fulfilled is tried again until it can. Its methods are safe for concurrent use.
type Tainter struct {
	cfg  TainterConfig
	wake chan struct{}

	// writePending tells of a write of the taint that was not told of yet: whether it went through may be seen only later. trying is what it was to
	// bring. They are Run's.
	writePending, pendingTaint bool

	mu      sync.Mutex
	desired *taintState
}

type taintState struct {
	taint  bool
	reason string
}

// NewTainter returns a tainter that does nothing before Run and the first Want.
func NewTainter(cfg TainterConfig) *Tainter { return &Tainter{cfg: cfg, wake: make(chan struct{}, 1)} }

// Name is that of its heartbeat.
func (t *Tainter) Name() string { return "taint" }

// SetDesired says how it should be. It does not wait for anything.
func (t *Tainter) SetDesired(want bool, why string) {
	t.mu.Lock()
	changed := t.desired == nil || t.desired.taint != want
	t.desired = &taintState{want, why}
	t.mu.Unlock()
	if !changed {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *Tainter) desiredState() *taintState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.desired
}

// Run brings the node to what is wanted until ctx ends, and then takes the taint away: without an agent nobody would. Where nothing was
// wanted yet the node is left as it is.
func (t *Tainter) Run(ctx context.Context) error {
	t.cfg.Beat("begin")
	pause, told := time.Duration(0), ""
	for {
		// After a failure a new wish waits as well: an API server that is down hears the same from every node.
		wait, wake := compareInterval, t.wake
		if pause > 0 {
			wait, wake = pause+rand.N(pause/2), nil
		}
		timer := t.cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return t.removeTaint(ctx)
		case <-wake:
			timer.Stop()
		case <-timer.C():
		}
		err := t.apply(ctx, t.cfg.Node(), t.desiredState())
		t.cfg.Beat("compare")
		if err == nil {
			pause, told = 0, ""
			continue
		}
		pause = min(max(2*pause, minRetry), maxRetry)
		if told != err.Error() && ctx.Err() == nil {
			told = err.Error()
			t.cfg.Log.Info("Cannot say on the node whether it is tight; goes on trying", "error", told)
		}
	}
}

// apply fulfils a wish.
func (t *Tainter) apply(ctx context.Context, node *corev1.Node, w *taintState) error {
	if w == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, taintTimeout)
	defer cancel()
	changed, err := t.Sync(ctx, node, w.taint, w.reason)
	if t.cfg.Report != nil && changed { // The taint; it may be the condition that could not be written.
		t.cfg.Report(TaintOutcome{Avoided: w.taint, Reason: w.reason})
	}
	if t.cfg.Report != nil && err != nil {
		t.cfg.Report(TaintOutcome{Avoided: w.taint, Reason: w.reason, Err: err})
	}
	return err
}

// removeTaint takes the taint away, by a fresh read.
func (t *Tainter) removeTaint(ctx context.Context) error {
	if t.desiredState() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), taintTimeout)
	defer cancel()
	err := RetryAtEnd(ctx, t.cfg.Clock, func(ctx context.Context) error { return t.apply(ctx, nil, &taintState{reason: "the agent has ended"}) })
	if err != nil {
		return fmt.Errorf("taint at the end: %w", err)
	}
	return nil
}
