// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

// Counts are the counters and sizes of a Predictor.
type Counts struct {
	// Histories and Refreshes count successful reads, Failed failed ones, Restored entries restored from checkpoints.
	Histories, Refreshes, Failed, Restored int64
	// Entries is the number of requests, Models the number of their series.
	Entries, Models int
}

// Counts returns the current counters.
func (p *Predictor) Counts() Counts {
	c := Counts{
		Histories: p.counts.histories.Load(), Refreshes: p.counts.refreshes.Load(), Restored: p.counts.restored.Load(),
		Failed: p.counts.failedHistories.Load() + p.counts.failedRefresh.Load(),
	}
	p.mu.Lock()
	defer p.mu.Unlock()

	c.Entries = len(p.requested.entries)
	c.Models = p.requested.models
	return c
}
