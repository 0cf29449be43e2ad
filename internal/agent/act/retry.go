// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

const (
	// endTries is how often something is tried that is done as an agent ends, endPause the first pause between: three and a half seconds
	// in all.
	endTries = 4
	endPause = 500 * time.Millisecond
)

// RetryAtEnd does what an agent leaves behind as it ends, and tries again where that fails: nobody would later. The error is the last one.
func RetryAtEnd(ctx context.Context, clk clock.Clock, do func(context.Context) error) error {
	for try, pause := 1, endPause; ; try, pause = try+1, 2*pause {
		err := do(ctx)
		if err == nil || try == endTries || ctx.Err() != nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return err // What is not allowed now is not in a moment.
		}
		select {
		case <-ctx.Done():
			return err
		case <-clk.After(pause):
		}
	}
}
