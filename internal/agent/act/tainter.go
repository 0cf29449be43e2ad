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
	// compared is how often the node is compared with what is wanted, from what a watch knows: somebody may have changed it.
	compared = 5 * time.Second
	// answered bounds the requests of one comparison.
	answered = 10 * time.Second
	// firstPause and lastPause bound the pause after a write that failed.
	firstPause, lastPause = time.Second, 30 * time.Second
)

// TaintConfig is what a Tainter needs.
type TaintConfig struct {
	// Name is the node's.
	Name  string
	Nodes typedcorev1.NodeInterface
	// Node is what a watch knows of the node; nil where it is not known.
	Node  func() *corev1.Node
	Clock clock.WithTicker
	Log   logr.Logger
	// Beat is called after each comparison.
	Beat func(step string)
	// Told is called when the taint was set or taken away, or could not be; it may be nil.
	Told func(TaintOutcome)
}

// TaintOutcome is how it went to keep new pods away or to welcome them again.
type TaintOutcome struct {
	// Avoided tells which.
	Avoided bool
	Why     string
	Err     error
}

// Tainter keeps new pods away from the node by a taint, and says why in a condition of it. It works beside the loop: the latest wish
// wins, and one that cannot be fulfilled is tried again until it can. Its methods are safe for concurrent use.
type Tainter struct {
	cfg  TaintConfig
	wake chan struct{}

	// tried tells of a write of the taint that was not told of yet: whether it went through may be seen only later. trying is what it was to
	// bring. They are Run's.
	tried, trying bool

	mu   sync.Mutex
	wish *wish
}

type wish struct {
	want bool
	why  string
}

// NewTainter returns a tainter that does nothing before Run and the first Want.
func NewTainter(cfg TaintConfig) *Tainter { return &Tainter{cfg: cfg, wake: make(chan struct{}, 1)} }

// Name is that of its heartbeat.
func (t *Tainter) Name() string { return "taint" }

// Want says how it should be. It does not wait for anything.
func (t *Tainter) Want(want bool, why string) {
	t.mu.Lock()
	changed := t.wish == nil || t.wish.want != want
	t.wish = &wish{want, why}
	t.mu.Unlock()
	if !changed {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *Tainter) wanted() *wish {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wish
}

// Run brings the node to what is wanted until ctx ends, and then takes the taint away: without an agent nobody would. Where nothing was
// wanted yet the node is left as it is.
func (t *Tainter) Run(ctx context.Context) error {
	t.cfg.Beat("begin")
	pause, told := time.Duration(0), ""
	for {
		// After a failure a new wish waits as well: an API server that is down hears the same from every node.
		wait, wake := compared, t.wake
		if pause > 0 {
			wait, wake = pause+rand.N(pause/2), nil
		}
		timer := t.cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return t.end(ctx)
		case <-wake:
			timer.Stop()
		case <-timer.C():
		}
		err := t.bring(ctx, t.cfg.Node(), t.wanted())
		t.cfg.Beat("compare")
		if err == nil {
			pause, told = 0, ""
			continue
		}
		pause = min(max(2*pause, firstPause), lastPause)
		if told != err.Error() && ctx.Err() == nil {
			told = err.Error()
			t.cfg.Log.Info("Cannot say on the node whether it is tight; goes on trying", "error", told)
		}
	}
}

// bring fulfils a wish.
func (t *Tainter) bring(ctx context.Context, node *corev1.Node, w *wish) error {
	if w == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answered)
	defer cancel()
	changed, err := t.Sync(ctx, node, w.want, w.why)
	if t.cfg.Told != nil && changed { // The taint; it may be the condition that could not be written.
		t.cfg.Told(TaintOutcome{Avoided: w.want, Why: w.why})
	}
	if t.cfg.Told != nil && err != nil {
		t.cfg.Told(TaintOutcome{Avoided: w.want, Why: w.why, Err: err})
	}
	return err
}

// end takes the taint away, by a fresh read.
func (t *Tainter) end(ctx context.Context) error {
	if t.wanted() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answered)
	defer cancel()
	err := Finally(ctx, t.cfg.Clock, func(ctx context.Context) error { return t.bring(ctx, nil, &wish{why: "the agent has ended"}) })
	if err != nil {
		return fmt.Errorf("taint at the end: %w", err)
	}
	return nil
}
