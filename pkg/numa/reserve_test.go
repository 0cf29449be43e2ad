// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestReserve checks that the next zone provides what a zone lacks (gocrane carried 6 of 5 beyond a zone of 4).
func TestReserve(t *testing.T) {
	for _, c := range []struct {
		has      []Amount
		reserved Amount
		want     []Amount
		beyond   Amount
	}{
		{[]Amount{4, 4}, 5, []Amount{4, 1}, 0},
		{[]Amount{4, 4}, 0, []Amount{0, 0}, 0},
		{[]Amount{4, 0, 4}, 6, []Amount{4, 0, 2}, 0},
		{[]Amount{4, 4}, 9, []Amount{4, 4}, 1},
		{[]Amount{-4, 4}, 3, []Amount{0, 3}, 0},
		{[]Amount{4}, -3, []Amount{0}, 0},
		{nil, 3, []Amount{}, 3},
	} {
		if got, beyond := Reserve(c.has, c.reserved); !slices.Equal(got, c.want) || beyond != c.beyond {
			t.Errorf("%d of %v: %v and %d beyond, want %v and %d", c.reserved, c.has, got, beyond, c.want, c.beyond)
		}
	}
}

// TestReserve_Random checks that the sum is exact, no zone gives more than it has, and zones are used up in order.
func TestReserve_Random(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for range 2000 {
		has := make([]Amount, r.IntN(6))
		for i := range has {
			has[i] = Amount(r.IntN(12))
		}

		reserved := Amount(r.IntN(40))
		taken, beyond := Reserve(has, reserved)
		sum := beyond
		for i, n := range taken {
			sum += n
			if n < 0 || n > has[i] {
				t.Fatalf("Reserve(%v, %d): share of zone %d is %d, want 0 to %d", has, reserved, i, n, has[i])
			}

			if n > 0 && i > 0 && taken[i-1] != has[i-1] {
				t.Fatalf("Reserve(%v, %d) = %v, want zone %d used up before zone %d", has, reserved, taken, i-1, i)
			}
		}

		if sum != reserved || beyond > 0 && slices.ContainsFunc(has, func(h Amount) bool { return h > 0 }) && taken[len(taken)-1] != has[len(has)-1] {
			t.Fatalf("Reserve(%v, %d) = %v, %d, want a sum of %d and an excess only if all zones are used up", has, reserved, taken, beyond, reserved)
		}
	}
}

// TestReserveNamed checks that named amounts are taken as far as possible, and that the sum is the same as without names.
func TestReserveNamed(t *testing.T) {
	for _, c := range []struct {
		has, named []Amount
		reserved   Amount
		want       []Amount
		beyond     Amount
	}{
		{[]Amount{4, 4}, []Amount{1, 3}, 4, []Amount{1, 3}, 0},
		{[]Amount{4, 4}, []Amount{0, 3}, 5, []Amount{2, 3}, 0},
		{[]Amount{4, 4}, []Amount{3, 3}, 4, []Amount{3, 1}, 0},
		{[]Amount{4, 0}, []Amount{1, 3}, 4, []Amount{4, 0}, 0},
		{[]Amount{4, 4}, []Amount{0, -2, 9}, 9, []Amount{4, 4}, 1},
	} {
		if got, beyond := ReserveNamed(c.has, c.named, c.reserved); !slices.Equal(got, c.want) || beyond != c.beyond {
			t.Errorf("%d of %v, named %v: %v and %d beyond, want %v and %d", c.reserved, c.has, c.named, got, beyond, c.want, c.beyond)
		}
	}

	r := rand.New(rand.NewPCG(4, 6))
	for range 2000 {
		has := make([]Amount, r.IntN(6))
		named := make([]Amount, r.IntN(8))

		for i := range has {
			has[i] = Amount(r.IntN(12))
		}

		for i := range named {
			named[i] = Amount(r.IntN(8)) - 1
		}

		reserved := Amount(r.IntN(40))
		got, beyond := ReserveNamed(has, named, reserved)
		_, plain := Reserve(has, reserved)

		sum := beyond
		for i, n := range got {
			sum += n

			if n < 0 || n > has[i] {
				t.Fatalf("ReserveNamed(%v, %v, %d) = %v, want 0 to the amount of each zone", has, named, reserved, got)
			}
		}

		if sum != reserved || beyond != plain {
			t.Fatalf("ReserveNamed(%v, %v, %d) = %v, %d, want a sum of %d and an excess of %d", has, named, reserved, got, beyond, reserved, plain)
		}
	}
}
