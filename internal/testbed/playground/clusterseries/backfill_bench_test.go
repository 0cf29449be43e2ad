// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"testing"
	"time"

	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/internal/testbed/promserver"
)

// BenchmarkBackfill writes 14 days at a step of a minute for 60 workloads on 12 nodes, the playground's default, and
// measures a live batch of all their series.
func BenchmarkBackfill(b *testing.B) {
	now := time.Now().UTC().Truncate(time.Minute)
	past := load.Past{Start: now.Add(-14 * 24 * time.Hour), End: now}
	for b.Loop() {
		c := newCluster(b, load.Catalog(1, 60), 12, now.Add(-time.Minute))
		e := New(c.source)

		s, err := promserver.Open(promserver.Options{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}

		stats := c.write(b, e, s, past, time.Minute)
		b.ReportMetric(float64(len(c.objects.Pods)), "pods")
		b.ReportMetric(float64(stats.Series), "series")
		b.ReportMetric(float64(stats.Samples)/1e6, "Msamples")
		b.ReportMetric(float64(stats.Bytes)/(1<<20), "MiB")
		b.ReportMetric(stats.Took.Seconds(), "s/backfill")
		began := time.Now()

		batch := e.Samples(c.snapshot(now.Add(15 * time.Second)))
		if err := s.Append(b.Context(), "exporters", now.Add(15*time.Second), batch); err != nil {
			b.Fatal(err)
		}

		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/live-batch")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
