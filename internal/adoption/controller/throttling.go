// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/units"
)

const (
	// throttlingWindow is the window of the rates; it covers several scrapes.
	throttlingWindow = 5 * time.Minute
	// throttlingPods bounds the pods of one query.
	throttlingPods = 100
	// throttlingTimeout bounds one query; a decision does not wait longer.
	throttlingTimeout = 5 * time.Second
	// throttlingBackoff is the pause after a query that failed.
	throttlingBackoff = time.Minute
)

// Querier evaluates PromQL.
type Querier interface {
	Selector(metric string, matchers ...prometheus.Matcher) (string, error)
	Vector(ctx context.Context, query string, at time.Time) ([]metrics.Sample, error)
}

// PrometheusThrottling reads cAdvisor's counters of CFS periods from Prometheus.
type PrometheusThrottling struct {
	Querier Querier
	Clock   clock.PassiveClock

	mu        sync.Mutex
	skipUntil time.Time // no query before
}

// Throttled implements targetsnapshot.ThrottlingReader.
func (t *PrometheusThrottling) Throttled(ctx context.Context, pods []corev1.Pod) *units.Ratio {
	t.mu.Lock()
	quiet := t.Clock.Now().Before(t.skipUntil)
	t.mu.Unlock()

	if len(pods) == 0 || quiet {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, throttlingTimeout)
	defer cancel()

	worst, err := t.query(ctx, pods)
	if err != nil {
		t.mu.Lock()
		t.skipUntil = t.Clock.Now().Add(throttlingBackoff)
		t.mu.Unlock()
		ctrl.LoggerFrom(ctx).WithName("adoption").V(1).Info("throttling is not known", "namespace", pods[0].Namespace, "reason", err.Error())

		return nil
	}

	return worst
}

func (t *PrometheusThrottling) query(ctx context.Context, pods []corev1.Pod) (*units.Ratio, error) {
	names := make([]string, 0, len(pods))
	for i := range pods[:min(len(pods), throttlingPods)] {
		names = append(names, regexp.QuoteMeta(pods[i].Name))
	}

	rate := func(metric string) (string, error) {
		selector, err := t.Querier.Selector(metric,
			prometheus.Matcher{Label: "namespace", Op: "=", Value: pods[0].Namespace},
			prometheus.Matcher{Label: "pod", Op: "=~", Value: strings.Join(names, "|")},
			prometheus.Matcher{Label: "container", Op: "!=", Value: ""})

		return fmt.Sprintf("sum by (pod, container) (rate(%s[%s]))", selector, throttlingWindow), err
	}

	throttled, err := rate("container_cpu_cfs_throttled_periods_total")
	if err != nil {
		return nil, fmt.Errorf("asking for throttled periods: %w", err)
	}

	periods, err := rate("container_cpu_cfs_periods_total")
	if err != nil {
		return nil, fmt.Errorf("asking for CFS periods: %w", err)
	}

	samples, err := t.Querier.Vector(ctx, "max("+throttled+" / "+periods+")", t.Clock.Now())
	if err != nil {
		return nil, fmt.Errorf("asking for throttling: %w", err)
	}

	for _, s := range samples {
		if s.Value >= 0 && s.Value <= 1 { // False for NaN, the value of a container without work.
			share := units.Ratio(s.Value)
			return &share, nil
		}
	}

	return nil, nil
}
