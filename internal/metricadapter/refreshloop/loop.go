// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package refreshloop repeats a refresh of remote data at an interval, and sooner after a failure.
package refreshloop

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// retryInterval is the time between a failed refresh and the next one.
const retryInterval = 10 * time.Second

// Run calls refresh at once and then at each interval until ctx ends, and always returns nil. A value on wake, which may be nil, ends a
// wait early. Run logs each new error once, and the first success after one.
func Run(ctx context.Context, name string, clk clock.WithTicker, interval time.Duration, wake <-chan struct{}, refresh func(context.Context) error) error {
	log := logr.FromContextOrDiscard(ctx).WithName(name)
	logged := ""
	for {
		wait := interval
		failure := ""
		if err := refresh(ctx); err != nil {
			wait = min(retryInterval, interval)
			failure = err.Error()
		}

		// Only changes are logged, so that a source that is away for hours writes one line.
		if failure != logged && ctx.Err() == nil {
			logged = failure
			if failure != "" {
				log.Info("refresh failed, retrying", "reason", failure)
			} else {
				log.Info("refresh succeeded again")
			}
		}

		timer := clk.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-wake:
		case <-timer.C():
		}

		timer.Stop()
	}
}
