// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/metrics"
)

// TestErrorsArePublic checks that neither an error nor the reason of a stale value names a server that only administrators may know.
func TestErrorsArePublic(t *testing.T) {
	const address = "prometheus.monitoring:9090"
	err := fmt.Errorf("reading: %w", metrics.WithPublicMessage(errors.New("GET http://"+address+": refused"), "Prometheus cannot be reached"))
	for _, failure := range []error{err, fmt.Errorf("%w: %w", context.DeadlineExceeded, err)} {
		if got := FailureOf(failure).Body.Message; strings.Contains(got, address) || !strings.Contains(got, "Prometheus cannot be reached") {
			t.Errorf("FailureOf(%v) has the message %q, want the public one", failure, got)
		}
	}

	reads := 0
	s := &Shared[int]{Clock: clock.RealClock{}, Timeout: time.Minute, Patience: time.Minute, Read: func(context.Context) (*int, error) {
		reads++
		if reads > 1 {
			return nil, err
		}

		return &reads, nil
	}}
	for range 2 {
		_, _, stale, err := s.Get(t.Context())
		if err != nil || strings.Contains(stale, address) {
			t.Errorf("Get after a failed read = stale %q, %v, want the public message", stale, err)
		}
	}
}
