// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promserver

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// BenchmarkWriteBlocks measures writing a day of 1,000 series at a step of a minute: half of them counters with noise,
// a quarter gauges of whole pages, a quarter constants.
func BenchmarkWriteBlocks(b *testing.B) {
	end := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	grid := Grid{Start: end.Add(-day), End: end, Step: time.Minute}
	var samples uint64
	for b.Loop() {
		series := make([]Series, 1000)
		for i := range series {
			series[i] = benchSeries(i)
		}

		stats, err := WriteBlocks(b.Context(), b.TempDir(), grid, series)
		if err != nil {
			b.Fatal(err)
		}

		samples += stats.Samples
		b.ReportMetric(float64(stats.Bytes)/float64(stats.Samples), "B/sample")
	}

	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(samples), "ns/sample")
}

func benchSeries(i int) Series {
	rng := rand.New(rand.NewPCG(1, uint64(i)))
	total := 0.0
	return Series{
		Labels: labels.FromStrings("__name__", fmt.Sprintf("metric_%d", i%7), "pod", fmt.Sprintf("pod-%d", i), "namespace", "shop"),
		Fill: func(dst []float64, _ int) {
			for k := range dst {
				switch i % 4 {
				case 0, 1:
					total += 60 * rng.Float64()
					dst[k] = total
				case 2:
					dst[k] = 4096 * float64(rng.IntN(1<<16))
				default:
					dst[k] = 1
				}
			}
		},
	}
}
