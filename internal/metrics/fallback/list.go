// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/metrics"
)

// Cooldown is how long a source that has failed is asked only after all others. A source that is down costs one time limit
// in this time and not one for each question.
const Cooldown = 30 * time.Second

// Source is a data source in its place.
type Source struct {
	// Name is what --datasource calls it.
	Name string
	// Reader has the interfaces of package metrics that tell what the source can answer.
	Reader any
}

// Config is what a List needs beside its sources.
type Config struct {
	// IsQueryError tells an error that is about the question from one that is about the source. Nil: no error is.
	IsQueryError func(error) bool
	Clock        clock.PassiveClock
	Log          logr.Logger
}

// List asks sources in order. It is safe for concurrent use, and a prometheus.Collector.
type List struct {
	sources  []member
	config   Config
	answers  *prometheus.CounterVec
	failures *prometheus.CounterVec
}

// member is a source with what is known of it.
type member struct {
	Source
	*state
}

// state is shared by all readers of one source.
type state struct {
	mu    sync.Mutex
	until time.Time // the source rests until then
}

// New returns a list of sources, the preferred one first.
func New(config Config, sources ...Source) *List {
	labels := []string{"source", "question"}
	l := &List{
		config: config,
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_data_source_answers_total", Help: "Questions that a data source has answered, by what was asked.",
		}, labels),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_data_source_failures_total", Help: "Questions that a data source has failed to answer; the next one in order was asked.",
		}, labels),
	}
	for _, s := range sources {
		l.sources = append(l.sources, member{s, &state{}})
	}
	return l
}

// Describe implements prometheus.Collector.
func (l *List) Describe(to chan<- *prometheus.Desc) {
	l.answers.Describe(to)
	l.failures.Describe(to)
}

// Collect implements prometheus.Collector.
func (l *List) Collect(to chan<- prometheus.Metric) {
	l.answers.Collect(to)
	l.failures.Collect(to)
}

// order is who is asked in which order: those that rest come last.
func (l *List) order() []member {
	now := l.config.Clock.Now()
	var fit, resting []member
	for _, m := range l.sources {
		m.mu.Lock()
		// A clock that was set back must not let a source rest for longer than it should.
		rests := now.Before(m.until) && m.until.Sub(now) <= Cooldown
		m.mu.Unlock()
		if rests {
			resting = append(resting, m)
		} else {
			fit = append(fit, m)
		}
	}
	return append(fit, resting...)
}

// answer is the outcome of asking one source.
type answer struct {
	err error
	// begun tells that part of the answer has been handed on.
	begun bool
	// final tells that the error is not the source's.
	final bool
}

// first asks those sources that have an interface, in order, until one answers.
func first[Reader any](ctx context.Context, l *List, question string, ask func(Reader) answer) error {
	var failed []error
	for _, m := range l.order() {
		reader, can := m.Reader.(Reader)
		if !can {
			continue
		}
		a := ask(reader)
		switch {
		case a.err == nil:
			l.answers.WithLabelValues(m.Name, question).Inc()
			m.fit()
			return nil
		case a.final || ctx.Err() != nil:
			return a.err
		case errors.Is(a.err, metrics.ErrUnsupported):
			continue
		case l.config.IsQueryError != nil && l.config.IsQueryError(a.err):
			return a.err
		}
		l.fail(m, question, a.err)
		failed = append(failed, fmt.Errorf("data source %s: %w", m.Name, a.err))
		if a.begun {
			break
		}
	}
	if len(failed) == 0 {
		return fmt.Errorf("%s: %w", question, metrics.ErrUnsupported)
	}
	return errors.Join(failed...)
}

// fail lets a source rest, and tells it where it has just begun to.
func (l *List) fail(m member, question string, err error) {
	l.failures.WithLabelValues(m.Name, question).Inc()
	now := l.config.Clock.Now()
	m.mu.Lock()
	tell := !now.Before(m.until)
	m.until = now.Add(Cooldown)
	m.mu.Unlock()
	if tell && len(l.sources) > 1 {
		l.config.Log.Info("Data source fails; others are asked before it for a while", "source", m.Name, "question", question,
			"rest", Cooldown.String(), "reason", err.Error())
	}
}

// fit ends the rest of a source that has answered.
func (s *state) fit() {
	s.mu.Lock()
	s.until = time.Time{}
	s.mu.Unlock()
}
