// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/heartbeat"
)

// Manager is a part of the agent that runs from the start to the end. Parts are goroutines of their own that share nothing but immutable
// values, so that a slow one never stalls another; each calls its heartbeat after each step of its work.
type Manager interface {
	// Name is the name of its heartbeat, in logs and in metrics.
	Name() string
	// Run works until ctx ends, and undoes then what is not to stay. It may return an error before; it is then called again after a pause.
	Run(ctx context.Context) error
}

const (
	// startTimeout is how long the start of the others waits for one to begin.
	startTimeout = 15 * time.Second
	// minRetry and maxRetry bound the pause after a manager has failed.
	minRetry, maxRetry = time.Second, time.Minute
	// minStopTime is what each manager gets at least to stop, when the time for all is over.
	minStopTime = time.Second
)

// managerGroup run together.
type managerGroup struct {
	log        logr.Logger
	clock      clock.Clock
	heartbeats *heartbeat.Heartbeats
	// stopTimeout is how long all of them may take to stop.
	stopTimeout time.Duration
}

// runningManager is a manager that was started.
type runningManager struct {
	Manager

	stop context.CancelFunc
	done chan struct{}
	err  error // how it ended; to be read after done
}

// run starts managers in order, each when the one before has begun or is slow to, and stops them in reverse when ctx ends, each when the
// one before has ended. The error names those that could not stop in order or in time.
func (g managerGroup) run(ctx context.Context, list []Manager) error {
	var started []*runningManager
	for _, m := range list {
		r := g.start(ctx, m)
		started = append(started, r)
		if !g.waitStarted(ctx, r) {
			break
		}
	}
	<-ctx.Done()
	end := g.clock.Now().Add(g.stopTimeout)
	var errs []error
	for _, r := range slices.Backward(started) {
		r.stop()
		select {
		case <-r.done:
			if r.err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", r.Name(), r.err))
			}
		case <-g.clock.After(max(end.Sub(g.clock.Now()), minStopTime)):
			errs = append(errs, fmt.Errorf("%s: has not stopped in time", r.Name()))
		}
	}
	return errors.Join(errs...)
}

// start lets a manager run until it is stopped: ctx ending is not enough, since it is stopped in its turn.
func (g managerGroup) start(ctx context.Context, m Manager) *runningManager {
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &runningManager{Manager: m, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for pause := minRetry; ; pause = min(2*pause, maxRetry) {
			began := g.clock.Now()
			err := m.Run(own)
			if own.Err() != nil {
				r.err = err
				return
			}
			if err == nil {
				g.heartbeats.Remove(m.Name()) // It has nothing more to do.
				return
			}
			if g.clock.Since(began) > maxRetry {
				pause = minRetry
			}
			g.log.Info("A part of the agent has failed", "part", m.Name(), "error", err.Error(), "again in", pause.String())
			select {
			case <-own.Done():
				return
			case <-g.clock.After(pause):
			}
		}
	}()
	return r
}

// waitStarted waits until a manager was seen at work, and tells whether to go on.
func (g managerGroup) waitStarted(ctx context.Context, r *runningManager) bool {
	seen := g.heartbeats.Started(r.Name())
	if seen == nil {
		return ctx.Err() == nil // It has no heartbeat to wait for.
	}
	select {
	case <-seen:
	case <-r.done:
	case <-ctx.Done():
		return false
	case <-g.clock.After(startTimeout):
		g.log.Info("A part of the agent is slow to begin; the others do not wait", "part", r.Name())
	}
	return true
}
