// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package featuregate

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
)

// TestGates checks the default of every gate, and that a gate without an effect is reported once and by its full name.
func TestGates(t *testing.T) {
	all := New()
	for name, spec := range Specs() {
		if all.Enabled(name) != spec.Default {
			t.Errorf("%s is enabled: %t, want %t", name, all.Enabled(name), spec.Default)
		}
	}

	if len(all.GetAll()) < len(Specs()) {
		t.Errorf("%d gates, want %d or more", len(all.GetAll()), len(Specs()))
	}

	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	all.AddFlag(fs)

	served := func(f featuregate.Feature) bool { return f == NodeResource }
	if got := Warnings(fs, "x", served); got != nil {
		t.Errorf("Warnings without a gate that was set = %q, want none", got)
	}
	if err := fs.Parse([]string{"--feature-gates=NodeResourceTopology=true,NodeResource=false,Analysis=true"}); err != nil {
		t.Fatal(err)
	}

	want := []string{"--feature-gates: Analysis has no effect on this x", "--feature-gates: NodeResourceTopology has no effect on this x"}
	if got := Warnings(fs, "x", served); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if all.Enabled(NodeResource) || !all.Enabled(NodeResourceTopology) {
		t.Error("the gates are those of the defaults, want those of the flag")
	}
	if err := fs.Parse([]string{"--feature-gates=Unheard=true"}); err == nil {
		t.Error("--feature-gates=Unheard=true is accepted, want an error")
	}
}
