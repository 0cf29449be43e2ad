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

// Cooldown is how long a failed source is used only after all others. A source that is down thus costs one timeout per cooldown instead of
// one per request.
const Cooldown = 30 * time.Second

// Source is a named data source.
type Source struct {
	// Name is the name of the source in --datasource.
	Name string
	metrics.Capabilities
}

// Config configures a List.
type Config struct {
	// IsQueryError reports whether an error is caused by the request instead of the source. Nil means that no error is.
	IsQueryError func(error) bool
	Clock        clock.PassiveClock
	Log          logr.Logger
}

// List uses sources in order. It is safe for concurrent use, and a prometheus.Collector.
type List struct {
	sources  []member
	config   Config
	answers  *prometheus.CounterVec
	failures *prometheus.CounterVec
}

// member is a source with its state.
type member struct {
	Source
	*cooldown
}

// cooldown is shared by all readers of one source.
type cooldown struct {
	mu    sync.Mutex
	until time.Time
}

// New returns a list of sources in order of preference.
func New(config Config, sources ...Source) *List {
	labels := []string{"source", "question"}
	l := &List{
		config: config,
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_data_source_answers_total", Help: "Requests that a data source has answered, by kind of request.",
		}, labels),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_data_source_failures_total", Help: "Requests that a data source has failed to answer, after which the next source was tried.",
		}, labels),
	}

	for _, s := range sources {
		l.sources = append(l.sources, member{s, &cooldown{}})
	}

	return l
}

// Describe implements prometheus.Collector.
func (l *List) Describe(descriptions chan<- *prometheus.Desc) {
	l.answers.Describe(descriptions)
	l.failures.Describe(descriptions)
}

// Collect implements prometheus.Collector.
func (l *List) Collect(samples chan<- prometheus.Metric) {
	l.answers.Collect(samples)
	l.failures.Collect(samples)
}

// order returns the sources with those in cooldown last.
func (l *List) order() []member {
	now := l.config.Clock.Now()
	var ready, failed []member
	for _, m := range l.sources {
		m.mu.Lock()
		// A clock that was set back must not extend the cooldown.
		cooling := now.Before(m.until) && m.until.Sub(now) <= Cooldown
		m.mu.Unlock()

		if cooling {
			failed = append(failed, m)
		} else {
			ready = append(ready, m)
		}
	}

	return append(ready, failed...)
}

// attempts is the state of one request over several sources.
type attempts struct {
	list    *List
	request string
	failed  []error
}

// record handles the result of one source. next reports whether to try another source; otherwise err is the result of the request.
func (a *attempts) record(ctx context.Context, m member, err error) (next bool, result error) {
	switch {
	case err == nil:
		a.list.answers.WithLabelValues(m.Name, a.request).Inc()
		m.mu.Lock()
		m.until = time.Time{}
		m.mu.Unlock()

		return false, nil

	case ctx.Err() != nil:
		return false, err
	case errors.Is(err, metrics.ErrUnsupported):
		return true, nil
	case a.list.config.IsQueryError != nil && a.list.config.IsQueryError(err):
		return false, err
	}

	a.list.startCooldown(m, a.request, err)
	a.failed = append(a.failed, fmt.Errorf("data source %s: %w", m.Name, err))
	return true, nil
}

// err returns the error of a request that no source has answered.
func (a *attempts) err() error {
	if len(a.failed) == 0 {
		return fmt.Errorf("%s: %w", a.request, metrics.ErrUnsupported)
	}

	return errors.Join(a.failed...)
}

// startCooldown counts a failure, and logs it if the source was not in cooldown.
func (l *List) startCooldown(m member, request string, err error) {
	l.failures.WithLabelValues(m.Name, request).Inc()
	now := l.config.Clock.Now()
	m.mu.Lock()
	first := !now.Before(m.until)
	m.until = now.Add(Cooldown)
	m.mu.Unlock()

	if first && len(l.sources) > 1 {
		l.config.Log.Info("data source failed; others are preferred during its cooldown", "source", m.Name, "request", request,
			"cooldown", Cooldown.String(), "reason", err.Error())
	}
}
