// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"testing"
	"time"
)

// BenchmarkCronWindow measures windows that are open soon, and some that open rarely.
func BenchmarkCronWindow(b *testing.B) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for _, c := range [][2]string{
		{"0 8 * * 1-5", "0 18 * * 1-5"}, {"* 8 * * *", "* 18 * * *"}, {"* * * 1 *", "0 0 1 2 *"}, {"*/5 * * 12 *", "0 0 1 1 *"}, {"0 0 29 2 *", "0 0 1 3 *"},
	} {
		w, err := NewCronWindow("w", c[0], c[1], time.UTC, 3)
		if err != nil {
			b.Fatal(err)
		}

		b.Run("open/"+c[0], func(b *testing.B) {
			for b.Loop() {
				w.IsOpen(now)
			}
		})
		b.Run("next/"+c[0], func(b *testing.B) {
			for b.Loop() {
				w.Next(now)
			}
		})
	}
}
