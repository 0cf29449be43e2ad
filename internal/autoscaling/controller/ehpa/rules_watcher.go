// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
)

// rulesPollInterval is the time between two reads of prometheus-adapter's configuration.
const rulesPollInterval = 30 * time.Second

// RulesWatcher reads prometheus-adapter's configuration from a file or a ConfigMap whenever it changes. Invalid rules leave the previous
// ones in force and are logged once.
type RulesWatcher struct {
	File string
	// ConfigMap and Key are read through Reader where File is empty.
	ConfigMap client.ObjectKey
	Key       string
	Reader    client.Reader
	// ExtraMatchers are added to each query.
	ExtraMatchers []prometheus.Matcher
	// Changed receives an event when other rules are in force.
	Changed chan<- event.TypedGenericEvent[client.Object]
	Clock   clock.WithTicker

	current   atomic.Pointer[promadapter.Rules]
	raw       []byte
	lastError string
	problem   atomic.Pointer[error]
}

// Problem returns why the configuration as it is now is not in force, nil if it is.
func (f *RulesWatcher) Problem() error {
	if err := f.problem.Load(); err != nil {
		return *err
	}

	return nil
}

// Current returns the rules, nil for none. read is false until configured rules have been read.
func (f *RulesWatcher) Current() (rules *promadapter.Rules, read bool) {
	rules = f.current.Load()
	return rules, rules != nil || f.File == "" && f.ConfigMap.Name == ""
}

// Start polls until ctx ends.
func (f *RulesWatcher) Start(ctx context.Context) error {
	pollAndNotify(ctx, f.Clock, rulesPollInterval, f.Changed, func(ctx context.Context) bool {
		changed, err := f.reload(ctx)
		switch {
		case err == nil:
			f.lastError = ""
		case err.Error() != f.lastError:
			f.lastError = err.Error()
			ctrl.LoggerFrom(ctx).Error(err, "keeping the previous rules of prometheus-adapter's configuration")
		}

		return changed
	})

	return nil
}

// reload reads the configuration and reports whether other rules are in force.
func (f *RulesWatcher) reload(ctx context.Context) (changed bool, err error) {
	defer func() { f.problem.Store(&err) }()

	raw, err := f.read(ctx)
	if err != nil || f.raw != nil && bytes.Equal(raw, f.raw) {
		return false, err
	}

	rules, err := promadapter.Parse(raw, f.ExtraMatchers)
	if err != nil {
		return false, err
	}

	f.raw = raw
	f.current.Store(rules)
	return true, nil
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
