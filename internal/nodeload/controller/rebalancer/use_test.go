// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
)

// cachingPod answers for a pod of one core with 10 GiB of page cache in use and 100 MiB of anonymous memory.
type cachingPod struct{}

func (cachingPod) Selector(metric string, _ ...prometheus.Matcher) (string, error) {
	return metric, nil
}

func (cachingPod) Vector(_ context.Context, query string, at time.Time) ([]metrics.Sample, error) {
	for metric, value := range map[string]float64{
		"container_cpu_usage_seconds_total": 1, "container_memory_working_set_bytes": 10<<30 + 100<<20, "container_memory_rss": 100 << 20,
	} {
		if strings.Contains(query, metric) {
			return []metrics.Sample{{Labels: map[string]string{"namespace": "shop", "pod": "cache"}, Time: at, Value: value}}, nil
		}
	}

	return nil, nil
}

// TestPageCacheIsNotMoved checks that a pod counts with the memory that its node's load includes, which excludes page cache.
func TestPageCacheIsNotMoved(t *testing.T) {
	c := &Controller{cfg: Config{Usage: cachingPod{}}}
	s := &snapshot{onHot: map[int][]*corev1.Pod{0: {{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache"}}}}}
	use, err := c.use(t.Context(), s, time.Unix(0, 0))
	if err != nil {
		t.Fatalf("use: %v, want no error", err)
	}

	if got, ok := use("shop", "cache"); !ok || got.CPU != 1000 || got.Memory != 100<<20 {
		t.Errorf("use(shop, cache) = %+v, %t, want a core and 100 MiB", got, ok)
	}
}
