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
	// beginBound is how long the start of the others waits for one to begin.
	beginBound = 15 * time.Second
	// firstRetry and lastRetry bound the pause after a manager has failed.
	firstRetry, lastRetry = time.Second, time.Minute
	// lastMoment is what each manager gets at least to stop, when the time for all is over.
	lastMoment = time.Second
)

// managers run together.
type managers struct {
	log   logr.Logger
	clock clock.Clock
	pulse *heartbeat.Pulse
	// stopBound is how long all of them may take to stop.
	stopBound time.Duration
}

// running is a manager that was started.
type running struct {
	Manager

	stop context.CancelFunc
	done chan struct{}
	err  error // how it ended; to be read after done
}

// run starts managers in order, each when the one before has begun or is slow to, and stops them in reverse when ctx ends, each when the
// one before has ended. The error names those that could not stop in order or in time.
func (g managers) run(ctx context.Context, list []Manager) error {
	var started []*running
	for _, m := range list {
		r := g.start(ctx, m)
		started = append(started, r)
		if !g.begun(ctx, r) {
			break
		}
	}
	<-ctx.Done()
	end := g.clock.Now().Add(g.stopBound)
	var errs []error
	for _, r := range slices.Backward(started) {
		r.stop()
		select {
		case <-r.done:
			if r.err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", r.Name(), r.err))
			}
		case <-g.clock.After(max(end.Sub(g.clock.Now()), lastMoment)):
			errs = append(errs, fmt.Errorf("%s: has not stopped in time", r.Name()))
		}
	}
	return errors.Join(errs...)
}

// start lets a manager run until it is stopped: ctx ending is not enough, since it is stopped in its turn.
func (g managers) start(ctx context.Context, m Manager) *running {
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{Manager: m, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
			began := g.clock.Now()
			err := m.Run(own)
			if own.Err() != nil {
				r.err = err
				return
			}
			if err == nil {
				g.pulse.Forget(m.Name()) // It has nothing more to do.
				return
			}
			if g.clock.Since(began) > lastRetry {
				pause = firstRetry
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

// begun waits until a manager was seen at work, and tells whether to go on.
func (g managers) begun(ctx context.Context, r *running) bool {
	seen := g.pulse.Begun(r.Name())
	if seen == nil {
		return ctx.Err() == nil // It has no heartbeat to wait for.
	}
	select {
	case <-seen:
	case <-r.done:
	case <-ctx.Done():
		return false
	case <-g.clock.After(beginBound):
		g.log.Info("A part of the agent is slow to begin; the others do not wait", "part", r.Name())
	}
	return true
}
