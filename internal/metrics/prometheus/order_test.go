// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"testing"

	"crane.io/crane/internal/component/recovery"
)

// TestPanicOfAJob checks that a panic of a job, which has a goroutine of its own, is the error of the reader.
func TestPanicOfAJob(t *testing.T) {
	broken := func(context.Context) (int, error) {
		var none []int
		i := len(none)

		return none[i], nil
	}

	var failure error
	for _, err := range inOrder(t.Context(), 2, []func(context.Context) (int, error){broken, broken, broken}) {
		failure = err
	}

	var panicked *recovery.PanicError
	if !errors.As(failure, &panicked) {
		t.Errorf("inOrder with jobs that panic ends with %v, want a *recovery.PanicError", failure)
	}
}
