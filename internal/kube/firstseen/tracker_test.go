// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package firstseen

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestTracker(t *testing.T) {
	var o Tracker
	start := time.Unix(1_000_000, 0)
	a := types.NamespacedName{Name: "a"}
	b := types.NamespacedName{Name: "b"}

	if got := o.Since(a, start); got != 0 {
		t.Errorf("it began %s ago, want now", got)
	}
	if first, other := o.Since(a, start.Add(time.Minute)), o.Since(b, start.Add(time.Minute)); first != time.Minute || other != 0 {
		t.Errorf("it began %s and %s ago, want 1m and now", first, other)
	}

	o.Forget(a)
	if again := o.Since(a, start.Add(time.Hour)); again != 0 || o.Len() != 2 {
		t.Errorf("Since after Forget = %s with %d known, want 0 with 2", again, o.Len())
	}
}
