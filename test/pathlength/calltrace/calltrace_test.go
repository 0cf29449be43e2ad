// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package calltrace

import (
	"maps"
	"slices"
	"testing"
)

// TestTrace records calls as instrumented functions make them: a reads from b, which calls c, and one call goes back to a.
func TestTrace(t *testing.T) {
	call := func(name, folder string, body func()) {
		defer Enter(name, folder, false, false)()

		body()
	}

	leave := Enter("a.Root", "a", false, false)
	Start()

	call("b.Read", "b", func() {
		call("c.Parse", "c", func() { Mark() })
		call("c.Other", "c", func() {})
		call("a.Callback", "a", func() {})
	})

	call("a.Own", "a", func() { call("a.Helper", "a", func() {}) })
	// The body of a loop over an iterator of b belongs to a.
	func() {
		defer Enter("b.All", "b", true, true)()

		Yield(func() bool {
			call("a.Add", "a", func() {})
			return true
		})
	}()

	Pause()
	call("d.Paused", "d", func() {})
	Resume()
	got := Stop()
	leave()

	if !slices.Equal(got.Functions["a"], []string{"a.Add", "a.Callback", "a.Helper", "a.Own"}) || !slices.Equal(got.Functions["c"], []string{"c.Other", "c.Parse"}) || got.Functions["d"] != nil {
		t.Errorf("functions %v", got.Functions)
	}
	if !slices.Equal(got.TurnBacks, []Call{{"b.Read", "a.Callback"}}) {
		t.Errorf("turn-backs %v", got.TurnBacks)
	}
	if path := slices.Sorted(maps.Keys(got.Path)); !slices.Equal(path, []string{"a.Root", "b.Read", "c.Parse"}) {
		t.Errorf("path %v", path)
	}
}
