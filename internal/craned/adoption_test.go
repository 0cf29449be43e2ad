// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"testing"
	"time"
)

// TestReactsAsReplayed checks that a replay includes the reaction only if craned reacts, within the delay that the replay assumes.
func TestReactsAsReplayed(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Options)
		want   bool
	}{
		"default":     {func(*Options) {}, true},
		"often":       {func(o *Options) { o.Adoption.ReactionInterval = 15 * time.Second }, true},
		"too seldom":  {func(o *Options) { o.Adoption.ReactionInterval = 2 * time.Minute }, false},
		"off":         {func(o *Options) { o.Adoption.ReactionInterval = 0 }, false},
		"dry run":     {func(o *Options) { o.Adoption.DryRun = true }, false},
		"no adoption": {func(o *Options) { o.Controllers = []string{"*", "-adoption"} }, false},
	} {
		o := NewOptions()
		test.change(o)

		if o.reactsAsReplayed() != test.want {
			t.Errorf("%s: %v, want %v", name, o.reactsAsReplayed(), test.want)
		}
	}
}
