// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import "context"

type yieldKey struct{}

// Yielding returns a context whose requests to a source give way to those of other contexts: for queries that tenants write.
func Yielding(ctx context.Context) context.Context { return context.WithValue(ctx, yieldKey{}, true) }

// Yields reports whether the requests of a context give way to others.
func Yields(ctx context.Context) bool {
	yields, _ := ctx.Value(yieldKey{}).(bool)
	return yields
}
