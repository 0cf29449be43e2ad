// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMessage(t *testing.T) {
	for text, want := range map[string]int{"": 0, "short": 5, "two\nlines": 10, strings.Repeat("é", 1000): 1024, "x" + strings.Repeat("é", 1000): 1023} {
		got := Message(text)
		if len(got) != want || !utf8.ValidString(got) || strings.Contains(got, "\n") {
			t.Errorf("%d bytes, want %d: %q", len(got), want, got)
		}
	}
}

func TestSet_Transitions(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	var conditions []metav1.Condition
	for i, c := range []struct {
		state  State
		since  time.Duration
		became bool
	}{
		{State{"Ready", true, "Fine", ""}, 0, false},
		{State{"Ready", true, "Better", ""}, 0, false},
		{State{"Ready", false, "Broken", "a"}, 2 * time.Minute, true},
		{State{"Ready", false, "Broken", "b"}, 2 * time.Minute, false},
		{State{"Ready", false, "Gone", ""}, 2 * time.Minute, true},
	} {
		before := append([]metav1.Condition(nil), conditions...)
		c.state.Set(&conditions, 1, now.Add(time.Duration(i)*time.Minute))

		if got := conditions[0].LastTransitionTime.Sub(now); got != c.since {
			t.Errorf("step %d: transition after %s, want %s", i, got, c.since)
		}
		if got := BecameFalse(before, conditions, "Ready") != nil; got != c.became {
			t.Errorf("step %d: BecameFalse is a condition: %t, want %t", i, got, c.became)
		}
	}
}
