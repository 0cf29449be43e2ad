// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/prometheus/model/labels"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/adoption/controller"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

// throttlingServer is a Prometheus server with counters of CFS periods.
type throttlingServer struct {
	*promserver.Server
	namespace string
	at        time.Time             // time of the last scrape
	counters  map[string][2]float64 // throttled periods and all periods, by pod/container
}

func serveThrottling(t *testing.T, namespace string, from time.Time) *throttlingServer {
	t.Helper()
	server := harness.OpenPrometheus(t, promserver.Options{Dir: t.TempDir()})
	return &throttlingServer{Server: server, namespace: namespace, at: from, counters: map[string][2]float64{}}
}

// scrape adds the counters after a period in which a share of the CFS periods of each container was throttled. A container whose
// share is NaN had no CFS period.
func (s *throttlingServer) scrape(t *testing.T, after time.Duration, shares map[string]float64) {
	t.Helper()

	s.at = s.at.Add(after)
	var batch []promserver.Sample
	for name, share := range shares {
		pod, container, _ := strings.Cut(name, "/")
		c := s.counters[name]
		if periods := after.Seconds() / 0.3; !math.IsNaN(share) {
			c[0], c[1] = c[0]+share*periods, c[1]+periods
		}

		s.counters[name] = c
		for i, metric := range []string{"container_cpu_cfs_throttled_periods_total", "container_cpu_cfs_periods_total"} {
			batch = append(batch, promserver.Sample{
				Labels: labels.FromStrings("__name__", metric, "namespace", s.namespace, "pod", pod, "container", container), Value: c[i],
			})
		}
	}

	if err := s.Append(t.Context(), "cadvisor", s.at, batch); err != nil {
		t.Fatal(err)
	}
}

func podsNamed(namespace string, names ...string) []corev1.Pod {
	var out []corev1.Pod
	for _, n := range names {
		out = append(out, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: n}})
	}

	return out
}

// TestThrottlingQuery checks against a real Prometheus that the query returns the highest share of the containers of the given
// pods only, and that a missing share is distinct from 0.
func TestThrottlingQuery(t *testing.T) {
	now := time.Now()
	s := serveThrottling(t, "shop", now.Add(-10*time.Minute))
	for range 20 {
		s.scrape(t, 30*time.Second, map[string]float64{
			"web-1/app": 0.1, "web-1/proxy": 0.4, "web-2/app": 0, "web-10/app": 0.9, "idle/app": math.NaN(), "idle/proxy": 0.2, "still/app": math.NaN(),
		})
	}

	cfg := prometheus.DefaultConfig()
	cfg.Address = s.URL()
	source, err := prometheus.New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	clock := clocktesting.NewFakePassiveClock(now)
	ctx := ctrl.LoggerInto(t.Context(), logr.Discard())
	throttling := &controller.PrometheusThrottling{Querier: source, Clock: clock}
	for _, c := range []struct {
		pods []string
		want float64 // below 0: no share
	}{
		{[]string{"web-1", "web-2"}, 0.4},
		{[]string{"web-2"}, 0},
		{[]string{"web-10"}, 0.9}, // The name does not match as a prefix.
		{[]string{"idle"}, 0.2},
		{[]string{"still"}, -1},
		{[]string{"missing"}, -1},
		{[]string{"web.1"}, -1}, // The name is not a pattern.
		{nil, -1},
	} {
		got := throttling.Throttled(ctx, podsNamed("shop", c.pods...))
		if (got == nil) != (c.want < 0) || got != nil && math.Abs(float64(*got)-c.want) > 0.01 {
			t.Errorf("%v: %v, want %v", c.pods, got, c.want)
		}
	}

	if got := throttling.Throttled(ctx, podsNamed("bank", "web-1")); got != nil {
		t.Errorf("share %v from another namespace, want none", *got)
	}
	// After a failed query, the source is not queried for a minute.
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}

	if got := throttling.Throttled(ctx, podsNamed("shop", "web-1")); got != nil {
		t.Errorf("share %v from a stopped server, want none", *got)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}

	if got := throttling.Throttled(ctx, podsNamed("shop", "web-1")); got != nil {
		t.Errorf("share %v within a minute after a failed query, want none", *got)
	}

	clock.SetTime(now.Add(61 * time.Second))
	if got := throttling.Throttled(ctx, podsNamed("shop", "web-1")); got == nil {
		t.Error("no share a minute after a failed query, want one")
	}
}

// TestThrottledStepIsReverted checks that a step is reverted if containers are throttled more than before it.
func TestThrottledStepIsReverted(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 1)

	pods := f.Pods("web")
	if len(pods) != 1 {
		t.Fatalf("pods %v, want one", pods)
	}

	name := pods[0].Name + "/app"
	s := serveThrottling(t, f.Name, time.Now().Add(-11*time.Minute))
	for range 22 {
		s.scrape(t, 30*time.Second, map[string]float64{name: 0})
	}

	f.recommend("web", auto, "700m", "512Mi")
	startCraned(t, "--prometheus-address="+s.URL(), "--adoption-watch=30m")
	f.AwaitPods("web", "have the lowered requests", checkRequests("700m", "512Mi"))

	if before := f.state("web").Throttled; before == nil || *before != 0 {
		t.Fatalf("throttled share before the step: %v, want 0", before)
	}

	s.scrape(t, time.Since(s.at), map[string]float64{name: 0})
	for range 10 { // The test does not wait for scrapes of the following minutes: the counter grows within a second.
		s.scrape(t, 100*time.Millisecond, map[string]float64{name: 0})
	}

	c := s.counters[name]
	s.counters[name] = [2]float64{c[0] + 700, c[1] + 300}
	s.scrape(t, 100*time.Millisecond, map[string]float64{name: 0})
	f.AwaitPods("web", "have the original requests", checkRequests("1", "512Mi"))
	f.awaitPhase("web", adoption.Held)

	f.Eventually("an event states the reason", func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := admin.List(ctx, &list, client.InNamespace(f.Name)); err != nil {
			return err
		}

		for i := range list.Items {
			if strings.Contains(list.Items[i].Note, "throttled in") {
				return nil
			}
		}

		return errors.New("no such event")
	})
}
