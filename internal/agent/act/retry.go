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
	// endTries bounds the attempts of an action at the end of the agent, endPause is the first pause between them: three and a half
	// seconds in total.
	endTries = 4
	endPause = 500 * time.Millisecond
)

// RetryAtEnd retries a final action of the agent, which no later run would repeat. It returns the last error.
func RetryAtEnd(ctx context.Context, clk clock.Clock, do func(context.Context) error) error {
	for try, pause := 1, endPause; ; try, pause = try+1, 2*pause {
		err := do(ctx)
		if err == nil || try == endTries || ctx.Err() != nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return err // A retry would not help.
		}
		select {
		case <-ctx.Done():
			return err
		case <-clk.After(pause):
		}
	}
}
