// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
)

// rulesPollInterval is the time between two reads of prometheus-adapter's configuration.
const rulesPollInterval = 30 * time.Second

// listInterval is the time between two listings of the series of the rules.
const listInterval = time.Minute

// RulesWatcher reads prometheus-adapter's configuration from a file or a ConfigMap whenever it changes, and lists the series of its rules. A text
// that is no configuration leaves the previous rules in force and is logged once.
type RulesWatcher struct {
	File string
	// ConfigMap and Key are read through Reader where File is empty.
	ConfigMap client.ObjectKey
	Key       string
	Reader    client.Reader
	// ExtraMatchers are added to each query.
	ExtraMatchers []prometheus.Matcher
	// Query evaluates PromQL; nil where no source does, so that nothing is listed.
	Query func(ctx context.Context, expr string, at time.Time) ([]metrics.Sample, error)
	// MaxAge is the maximum age of the newest sample of a series that is listed; 0 for those with a value now.
	MaxAge time.Duration
	// Changed receives an event when other rules are in force or find other series.
	Changed chan<- event.TypedGenericEvent[client.Object]
	Clock   clock.WithTicker

	current   atomic.Pointer[ListedRules]
	raw       []byte
	listedAt  time.Time
	lastError string
}

// Current returns the rules in force.
func (f *RulesWatcher) Current() ListedRules {
	if current := f.current.Load(); current != nil {
		return *current
	}

	return ListedRules{Pending: f.File != "" || f.ConfigMap.Name != ""}
}

// Start polls until ctx ends.
func (f *RulesWatcher) Start(ctx context.Context) error {
	pollAndNotify(ctx, f.Clock, rulesPollInterval, f.Changed, func(ctx context.Context) bool {
		changed, err := f.refresh(ctx)
		switch {
		case err == nil:
			f.lastError = ""
		case err.Error() != f.lastError:
			f.lastError = err.Error()
			ctrl.LoggerFrom(ctx).Error(err, "following prometheus-adapter's configuration")
		}

		return changed
	})

	return nil
}

// refresh reads the configuration, lists the series of its rules when it is time, and reports whether something changed.
func (f *RulesWatcher) refresh(ctx context.Context) (changed bool, err error) {
	before := f.Current()
	next := before
	rules, err := f.reload(ctx)
	if rules != nil {
		next = ListedRules{Rules: rules, Pending: f.Query != nil}
		f.listedAt = time.Time{}
	}

	next.Problem = err
	if err == nil {
		next.Problem = next.Rules.Refused()
	}

	now := f.Clock.Now()
	if next.Rules != nil && f.Query != nil && now.Sub(f.listedAt) >= listInterval {
		series, listErr := next.Rules.ListSince(ctx, f.MaxAge, next.Series, f.names)
		err = errors.Join(err, listErr)
		next.Series = series
		next.Pending = false
		f.listedAt = now
	}

	f.current.Store(&next)
	changed = next.Rules != before.Rules || next.Pending != before.Pending || !next.Series.Equal(before.Series) || errorText(next.Problem) != errorText(before.Problem)
	return changed, err
}

func errorText(err error) string {
	if err == nil {
		return ""
	}

	return err.Error()
}

// names returns the names of the series of a query.
func (f *RulesWatcher) names(ctx context.Context, expr string) ([]string, error) {
	samples, err := f.Query(ctx, expr, f.Clock.Now())
	if err != nil {
		return nil, err
	}

	names := make([]string, len(samples))
	for i, s := range samples {
		names[i] = s.Labels["__name__"]
	}

	return names, nil
}

// reload reads the configuration and returns its rules where it changed, else nil.
func (f *RulesWatcher) reload(ctx context.Context) (*promadapter.Rules, error) {
	raw, err := f.read(ctx)
	if err != nil {
		return nil, err
	}

	if f.raw != nil && bytes.Equal(raw, f.raw) {
		return nil, nil //nolint:nilnil // nothing changed
	}

	rules, err := promadapter.Parse(raw, f.ExtraMatchers)
	if err != nil {
		return nil, err
	}

	f.raw = raw
	return rules, nil
}

func (f *RulesWatcher) read(ctx context.Context) ([]byte, error) {
	if f.File != "" {
		raw, err := os.ReadFile(f.File)
		if err != nil {
			return nil, fmt.Errorf("--prometheus-adapter-config: %w", err)
		}

		return raw, nil
	}

	var m corev1.ConfigMap
	if err := f.Reader.Get(ctx, f.ConfigMap, &m); err != nil {
		return nil, fmt.Errorf("reading prometheus-adapter's configuration: %w", err)
	}

	text, ok := m.Data[f.Key]
	if !ok {
		return nil, fmt.Errorf("ConfigMap %s has no key %q with prometheus-adapter's configuration", f.ConfigMap, f.Key)
	}

	return []byte(text), nil
}
