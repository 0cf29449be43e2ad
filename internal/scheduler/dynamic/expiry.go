// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"context"

	"k8s.io/utils/clock"
)

// expire wakes waiting pods when a metric has become stale, which causes no event: a stale metric no longer closes a
// node, and with too few fresh nodes load is ignored. It returns when ctx ends.
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

// wake makes the scheduler retry pods if a metric of a node has become stale since the last call. It is cheap while
// no pod waits because of load.
func (p *Plugin) wake() {
	if p.pods.rejected.Len() == 0 {
		return
	}

	now := p.clock.Now()
	expired := false
	p.entries.Range(func(_, value any) bool {
		e := value.(*entry)
		if e.view.Load() != nil {
			e.tick(now)
		}

		expired = e.expired.Swap(false) || expired
		return true
	})

	if expired {
		p.last.Store(nil) // the set of metrics in force may have changed
		p.retry()
	}
}
