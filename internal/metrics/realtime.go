// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"time"
)

// ErrUnsupported tells that a source does not answer questions of a sort. It is no failure of the source: another may
// be asked instead.
var ErrUnsupported = errors.New("no data source answers this")

// Reading is what one container uses now.
type Reading struct {
	Key ContainerKey
	// Time is when it was measured, over Window before that.
	Time   time.Time
	Window time.Duration
	// Value is in the unit of the resource, finite and not negative.
	Value float64
}

// RealtimeReader reads what containers use at the moment, from a source that need not keep any history. Containers of
// which nothing is known are left out; what cannot be a use (negative, not a number) as well. An error of visit ends the
// reading and is returned.
type RealtimeReader interface {
	// CurrentUsage reads the containers of some namespaces; empty means all.
	CurrentUsage(ctx context.Context, resource Resource, namespaces []string, visit func(Reading) error) error
}
