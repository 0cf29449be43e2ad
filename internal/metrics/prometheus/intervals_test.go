// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// scrapedEvery returns the samples of a value that a job with a longer interval keeps.
func scrapedEvery(interval time.Duration, value func(time.Time) float64) func(time.Time) float64 {
	return func(t time.Time) float64 {
		if t.Truncate(interval) != t {
			return math.NaN()
		}

		return value(t)
	}
}

// addUnequalJobs adds containers of a job that scrapes every minute, and one of a job that scrapes every interval and needs more.
func (w *fixture) addUnequalJobs(interval time.Duration) {
	for _, pod := range []string{"a-0", "b-0", "c-0"} {
		w.cpu("shop", pod, "app", constant(0.25), "job", "kubelet")
		w.memory("shop", pod, "app", constant(100), "job", "kubelet")
	}

	if interval > 0 {
		total := func(t time.Time) float64 { return 1e6 + 2*t.Sub(w.grid.Start).Seconds() }
		w.add(scrapedEvery(interval, total), "__name__", cpuMetric, "namespace", "shop", "pod", "slow-0", "container", "app", "cpu", "total", "job", "cadvisor")
		w.memory("shop", "slow-0", "app", scrapedEvery(interval, constant(300)), "job", "cadvisor")
	}
}

func TestUsageOfPodsThatAreScrapedLessOften(t *testing.T) {
	for _, interval := range []time.Duration{2 * time.Minute, 5 * time.Minute, 10 * time.Minute} {
		for resource, want := range map[metrics.UsageKind]float64{metrics.CPU: 2, metrics.Memory: 300} {
			w := newFixture(today.Add(-6*time.Hour), today)
			w.addUnequalJobs(interval)
			alone := newFixture(w.grid.Start, w.grid.End)
			alone.addUnequalJobs(0)

			req := metrics.UsageRequest{Resource: resource, Start: w.grid.Start, End: w.grid.End}
			got := readAll(t, w.source(t, nil), req)
			others := readAll(t, alone.source(t, nil), req)
			for key, usage := range got {
				if key.Pod != "slow-0" {
					continue
				}

				known := 0
				for i, v := range usage.Values {
					// A rate needs samples of its whole window.
					if series.IsGap(v) || usage.Time(i).Before(w.grid.Start.Add(4*interval)) {
						continue
					}

					known++
					if math.Abs(v-want) > 0.01*want {
						t.Errorf("%s scraped every %v: a value of %v, want %v", resource, interval, v, want)
					}
				}

				if known < 60 {
					t.Errorf("%s scraped every %v: %d values of five minutes in six hours, want almost all of 72", resource, interval, known)
				}
				delete(got, key)
			}

			if diff := cmp.Diff(others, got, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("%s of the other pods differs from that without the slow job (-want +got):\n%s", resource, diff)
			}
			if n := len(others); n != 3 {
				t.Errorf("%d other containers, want 3", n)
			}
		}
	}
}

func TestUsageOfPodsThatBothJobsScrape(t *testing.T) {
	w := newFixture(today.Add(-6*time.Hour), today)
	counter := func(t time.Time) float64 { return 1e6 + 0.25*t.Sub(w.grid.Start).Seconds() }
	labels := []string{"__name__", cpuMetric, "namespace", "shop", "pod", "a-0", "container", "app", "cpu", "total"}
	w.add(counter, append(labels, "job", "kubelet")...)
	w.add(scrapedEvery(5*time.Minute, counter), append(labels, "job", "cadvisor")...)

	got := readAll(t, w.source(t, nil), metrics.UsageRequest{Resource: metrics.CPU, Start: w.grid.Start, End: w.grid.End})
	if len(got) != 1 {
		t.Fatalf("Usage = %v, want one container", got)
	}
	for key, usage := range got {
		if usage.Step != 5*time.Minute {
			t.Errorf("Usage of %v has step %v, want the 5m of the shorter interval", key, usage.Step)
		}
		for i, v := range usage.Values {
			if math.Abs(v-0.25) > 0.001 {
				t.Errorf("Usage of %v at %v = %v, want 0.25", key, usage.Time(i), v)
			}
		}
	}
}
