// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backoff_test

import (
	"math"
	"testing"
	"time"

	"crane.io/crane/internal/component/backoff"
)

func TestExponential_After(t *testing.T) {
	minute := backoff.Exponential{First: 5 * time.Second, Last: time.Minute}
	longest := backoff.Exponential{First: time.Hour, Last: math.MaxInt64}

	for name, test := range map[string]struct {
		delays   backoff.Exponential
		failures int
		want     time.Duration
	}{
		"no failure":            {minute, 0, 5 * time.Second},
		"the first failure":     {minute, 1, 5 * time.Second},
		"the third failure":     {minute, 3, 20 * time.Second},
		"the cap":               {minute, 5, time.Minute},
		"far above the cap":     {minute, math.MaxInt, time.Minute},
		"less than none":        {minute, math.MinInt, 5 * time.Second},
		"First above Last":      {backoff.Exponential{First: time.Hour, Last: time.Minute}, 1, time.Minute},
		"the longest duration":  {longest, 1000, math.MaxInt64},
		"not a power of two":    {backoff.Exponential{First: 3 * time.Second, Last: 20 * time.Second}, 4, 20 * time.Second},
		"below the cap by half": {backoff.Exponential{First: 3 * time.Second, Last: 25 * time.Second}, 4, 24 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.delays.After(test.failures); got != test.want {
				t.Errorf("%+v.After(%d) = %s, want %s", test.delays, test.failures, got, test.want)
			}
		})
	}
}

func TestExponential_Next(t *testing.T) {
	delays := backoff.Exponential{First: time.Second, Last: 10 * time.Second}
	var delay time.Duration

	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		delay = delays.Next(delay)
		if delay != want*time.Second {
			t.Errorf("delay %d = %s, want %s", i+1, delay, want*time.Second)
		}
	}
}
