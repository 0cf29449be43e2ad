// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
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
)

// scrapes is a Prometheus that holds counters of CFS periods: 100 of them every half a minute.
type scrapes struct {
	*promserver.Server
	namespace string
	at        time.Time
	counters  map[string][2]float64 // throttled periods and all, by pod/container
}

func scrapeInto(t *testing.T, namespace string, from time.Time) *scrapes {
	t.Helper()
	server, err := promserver.Open(promserver.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &scrapes{Server: server, namespace: namespace, at: from, counters: map[string][2]float64{}}
}

// scrape adds one scrape: so many of the periods since the last one were throttled. A share that is NaN belongs to a container that
// has not worked.
func (s *scrapes) scrape(t *testing.T, after time.Duration, shares map[string]float64) {
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

func named(namespace string, names ...string) []corev1.Pod {
	var out []corev1.Pod
	for _, n := range names {
		out = append(out, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: n}})
	}
	return out
}

// TestThrottlingQuery asks a real Prometheus: the worst container of these pods counts, and nothing else; what is not known is told
// apart from none.
func TestThrottlingQuery(t *testing.T) {
	now := time.Now()
	s := scrapeInto(t, "shop", now.Add(-10*time.Minute))
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
		want float64 // below 0: not known
	}{
		{[]string{"web-1", "web-2"}, 0.4},
		{[]string{"web-2"}, 0},
		{[]string{"web-10"}, 0.9}, // web-1 is no prefix.
		{[]string{"idle"}, 0.2},
		{[]string{"still"}, -1},
		{[]string{"nobody"}, -1},
		{[]string{"web.1"}, -1}, // A name is no pattern.
		{nil, -1},
	} {
		got := throttling.Throttled(ctx, named("shop", c.pods...))
		if (got == nil) != (c.want < 0) || got != nil && math.Abs(float64(*got)-c.want) > 0.01 {
			t.Errorf("%v: %v, want %v", c.pods, got, c.want)
		}
	}
	if got := throttling.Throttled(ctx, named("bank", "web-1")); got != nil {
		t.Errorf("of another namespace: %v", *got)
	}
	// A source that does not answer is left alone for a minute.
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := throttling.Throttled(ctx, named("shop", "web-1")); got != nil {
		t.Errorf("from a source that is gone: %v", *got)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if got := throttling.Throttled(ctx, named("shop", "web-1")); got != nil {
		t.Errorf("it was asked again at once: %v", *got)
	}
	clock.SetTime(now.Add(61 * time.Second))
	if got := throttling.Throttled(ctx, named("shop", "web-1")); got == nil {
		t.Error("it was not asked again after a minute")
	}
}

// TestThrottledStepIsTakenBack: a step after which containers are throttled more than before is taken back.
func TestThrottledStepIsTakenBack(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 1)
	pods, err := podsOf(t.Context(), ns, "web")
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	name := pods[0].Name + "/app"
	s := scrapeInto(t, ns, time.Now().Add(-11*time.Minute))
	for range 22 {
		s.scrape(t, 30*time.Second, map[string]float64{name: 0})
	}
	recommend(t, ns, "web", auto, "700m", "512Mi")
	startCraned(t, "--prometheus-address="+s.URL(), "--adoption-watch=30m")
	podsUntil(t, ns, "web", "lowered", sized("700m", "512Mi"))
	if before := state(t, ns, "web").Throttled; before == nil || *before != 0 {
		t.Fatalf("before the step it was throttled by %v", before)
	}
	s.scrape(t, time.Since(s.at), map[string]float64{name: 0})
	for range 10 { // Scrapes of the coming minutes would be too late; the counter has gone up within a second of the last.
		s.scrape(t, 100*time.Millisecond, map[string]float64{name: 0})
	}
	c := s.counters[name]
	s.counters[name] = [2]float64{c[0] + 700, c[1] + 300}
	s.scrape(t, 100*time.Millisecond, map[string]float64{name: 0})
	podsUntil(t, ns, "web", "as it was", sized("1", "512Mi"))
	phase(t, ns, "web", adoption.Held)
	eventually(t, "the reason is told", func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := admin.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}
		for i := range list.Items {
			if strings.Contains(list.Items[i].Note, "throttled in") {
				return nil
			}
		}
		return context.DeadlineExceeded
	})
}
