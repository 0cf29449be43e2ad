// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math"
	"testing"

	"crane.io/crane/internal/metrics"
)

func TestQuantity(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.9: "900m", 0.0001: "1m", 1.5: "1500m", 7: "7", -0.25: "-250m", 1e12: "1T", 123456789.5: "123456789500m",
	} {
		if q, ok := quantity(v); !ok || q.String() != want {
			t.Errorf("%v: got %s, %v; want %s", v, q.String(), ok, want)
		}
	}

	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if q, ok := quantity(v); ok {
			t.Errorf("quantity(%v) = %s, want none", v, q.String())
		}
	}

	if q, ok := quantity(math.MaxFloat64); !ok || q.Sign() <= 0 {
		t.Errorf("quantity of the largest number = %s, %v, want a positive one", q.String(), ok)
	}
}

func TestValuesByName(t *testing.T) {
	sample := func(pod string, v float64) metrics.Sample {
		return metrics.Sample{Labels: metrics.Labels{"pod": pod}, Value: v}
	}

	found, bad := samplesByName([]metrics.Sample{
		sample("a", 1), sample("a", 2), sample("b", math.NaN()), sample("b", 3), sample("other", 4), sample("", 5),
	}, "pod", []string{"a", "b", "c"})
	if len(found) != 1 || found["a"].Value != 3 || bad != 1 {
		t.Errorf("got %v and %d bad ones: want the sum of a, and b with a part that is no number as bad", found, bad)
	}
}
