// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"context"

	"k8s.io/utils/clock"
)

// expire wakes the pods that wait when a metric has become stale, of which no event tells: a metric that closed a node closes it
// no more, and where too few nodes are fresh load decides nothing. It ends with ctx.
func (p *Plugin) expire(ctx context.Context, clk clock.WithTicker) {
	ticker := clk.NewTicker(stalePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			p.wake()
		}
	}
}

// wake makes the scheduler try pods again if a metric of a node has become stale since the last time. It costs nothing while no
// pod waits for load.
func (p *Plugin) wake() {
	if p.rejected.Len() == 0 {
		return
	}
	now, expired := p.clock.Now(), false
	p.entries.Range(func(_, value any) bool {
		e := value.(*entry)
		if e.view.Load() != nil {
			e.tick(now)
		}
		expired = e.expired.Swap(false) || expired
		return true
	})
	if expired {
		p.last.Store(nil) // which metrics are in force may be another matter now
		p.retry()
	}
}
