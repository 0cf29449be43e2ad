// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package progressline

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"crane.io/crane/internal/metrics"
)

// TestProgressWithoutTerminal checks that nothing is printed in the first two seconds, and then a line at once and every ten seconds.
func TestProgressWithoutTerminal(t *testing.T) {
	for name, test := range map[string]struct {
		seconds int
		stats   func() metrics.Stats
		want    string
	}{
		"short":         {1, nil, ""},
		"long":          {13, nil, "reading: 2s\nsizing: 12s\n"},
		"with counters": {3, func() metrics.Stats { return metrics.Stats{Queries: 4, Samples: 50} }, "reading: 4 queries, 50 samples, 2s\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				p := New(&out, "reading", test.stats)
				for second := range test.seconds {
					time.Sleep(time.Second)
					synctest.Wait()

					if second == 4 {
						p.SetPhase("sizing")
					}
				}

				p.Stop()
				p.Stop()
				time.Sleep(time.Minute)

				if out.String() != test.want {
					t.Errorf("printed %q, want %q", out.String(), test.want)
				}
			})
		})
	}
}
