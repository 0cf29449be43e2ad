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
	// compareInterval is the interval at which the watched node is compared with the desired state.
	compareInterval = 5 * time.Second
	// taintTimeout bounds the requests of one comparison.
	taintTimeout = 10 * time.Second
	// minRetry and maxRetry bound the pause after a failed write.
	minRetry, maxRetry = time.Second, 30 * time.Second
)

// TainterConfig configures a Tainter.
type TainterConfig struct {
	// Name is the node's name.
	Name  string
	Nodes typedcorev1.NodeInterface
	// Node returns the watched node; nil if unknown.
	Node  func() *corev1.Node
	Clock clock.WithTicker
	Log   logr.Logger
	// Beat is called after each comparison.
	Beat func(step string)
	// Keep reports at the end that the taint stays; nil for never.
	Keep func() bool
	// Report is called when the taint was changed or could not be; it may be nil.
	Report func(TaintOutcome)
}

// TaintOutcome is the outcome of a change of the taint.
type TaintOutcome struct {
	// Avoided reports whether the taint was to be set or removed.
	Avoided bool
	Reason  string
	Err     error
}

// Tainter sets or removes the taint that keeps new pods away and states the reason in a condition of the node. It works beside the loop:
// the latest desired state counts and is retried until it is reached. Its methods are safe for concurrent use.
type Tainter struct {
	cfg  TainterConfig
	wake chan struct{}

	// writePending reports an unreported write of the taint whose outcome may be seen later; pendingTaint is the state it sets. Both are
	// used by Run only.
	writePending, pendingTaint bool

	mu      sync.Mutex
	desired *taintState
}

type taintState struct {
	taint  bool
	reason string
}

// NewTainter returns a tainter to be started with Run.
func NewTainter(cfg TainterConfig) *Tainter { return &Tainter{cfg: cfg, wake: make(chan struct{}, 1)} }

// Name implements Manager.
func (t *Tainter) Name() string { return "taint" }

// SetDesired sets the desired state without waiting.
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

// Run applies the desired state until ctx ends and then removes the taint. Without any desired state the node is left unchanged.
func (t *Tainter) Run(ctx context.Context) error {
	t.cfg.Beat("begin")
	pause, told := time.Duration(0), ""
	for {
		// After a failure a new desired state waits too, so that not all nodes load a failing API server.
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
			t.cfg.Log.Info("failed to update the taint or condition of the node; will retry", "error", told)
		}
	}
}

// apply applies a desired state.
func (t *Tainter) apply(ctx context.Context, node *corev1.Node, w *taintState) error {
	if w == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, taintTimeout)
	defer cancel()
	changed, err := t.Sync(ctx, node, w.taint, w.reason)
	if t.cfg.Report != nil && changed { // The taint; the condition may have failed.
		t.cfg.Report(TaintOutcome{Avoided: w.taint, Reason: w.reason})
	}
	if t.cfg.Report != nil && err != nil {
		t.cfg.Report(TaintOutcome{Avoided: w.taint, Reason: w.reason, Err: err})
	}
	return err
}

// removeTaint removes the taint after a fresh read.
func (t *Tainter) removeTaint(ctx context.Context) error {
	if t.desiredState() == nil || t.cfg.Keep != nil && t.cfg.Keep() {
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
