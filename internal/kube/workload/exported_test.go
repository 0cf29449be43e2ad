// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import "testing"

// TestExportedNamespace checks that a tenant chooses no namespace of a series.
func TestExportedNamespace(t *testing.T) {
	for _, c := range []struct {
		object, target, want string
		ok                   bool
	}{
		{"shop", "shop", "shop", true},
		{"shop", "", "shop", true},
		{"shop", "pay", "pay", false},
		{"shop", "crane-system", "crane-system", false},
		{"crane-system", "shop", "shop", true},
		{"crane-system", "", "", true},
	} {
		got, ok := ExportedNamespace(c.object, c.target, "crane-system")
		if got != c.want || ok != c.ok {
			t.Errorf("ExportedNamespace(%q, %q, crane-system) = %q, %t, want %q, %t", c.object, c.target, got, ok, c.want, c.ok)
		}
	}
}
