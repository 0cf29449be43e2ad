// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"
)

// DayReader is a UsageReader that finishes one day before it begins the next: no chunk of a day comes after a chunk of a
// later day. What it has read can so be kept day by day, and told from what another server holds.
type DayReader interface {
	UsageReader
	// Identity names the server and what of it is looked at, without secrets. Two sources of the same identity may
	// still be two servers, as behind a forwarded port: Present tells.
	Identity() string
	// Step is the step that Usage would choose for a reading that ends at a time.
	Step(ctx context.Context, resource Resource, end time.Time) (time.Duration, error)
	// Present counts which of some pods used anything in [start, end), at most a day.
	Present(ctx context.Context, pods []string, start, end time.Time) (int, error)
	// Stats says, among others, whether the server has warned that answers are partial.
	Stats() Stats
}
