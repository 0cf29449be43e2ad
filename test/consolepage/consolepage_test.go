// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package consolepage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommands(t *testing.T) {
	const page = "# Page\n\n```console\n$ crane status\nCOMPONENT  STATE\n...\ncraned     ok\n$ crane cost \\\n    --by namespace\n```\n\n```yaml\n$ no: command\n```\n\n" +
		"1. Step\n\n   ```console\n   $ kubectl get nodes\n   NAME\n   ```\n"
	want := []Command{
		{Line: "crane status", Answer: []string{"COMPONENT  STATE", "craned     ok"}},
		{Line: "crane cost --by namespace"},
		{Line: "kubectl get nodes", Answer: []string{"   NAME"}},
	}

	if diff := cmp.Diff(want, Commands(page)); diff != "" {
		t.Errorf("Commands(page) differs (-want +got):\n%s", diff)
	}
}

// TestMissing changes each part of an answer: numbers may differ, columns, names and states may not.
func TestMissing(t *testing.T) {
	const answer = "NAME                           CHANGE              READY\n" +
		"checkout-resource-0f3a9c1b2d   1->950m, 2Gi->1.4Gi  True\n" +
		"cart-resource-aaaabbbb00       2->1, 4Gi->3Gi       True\n" +
		"saving: 12.50 USD a month of 140 USD\n"
	for _, c := range []struct {
		name, printed string
		want          int
	}{
		{"equal", "NAME   CHANGE   READY", 0},
		{"other numbers, units and digest", "checkout-resource-1111111111 500m->2, 900Mi->2Gi True", 0},
		{"omitted end", "saving: 3 USD ...", 0},
		{"omitted column", "NAME  ...  READY", 0},
		{"nothing omitted", "NAME ... CHANGE READY", 0},
		{"omitted beginning", "... saving: 3 USD a month of 1m20s USD", 0},
		{"omitted part of a name", "checkout-... 500m->2, 900Mi->2Gi ...", 0},
		{"omitted column of another answer", "NAME ... STATE", 1},
		{"omitted part between hyphens", "cart-...-0 2->1, ...", 0},
		{"another sign", "saving: -3 USD a month of +140 USD", 0},
		{"another column", "NAME   CHANGE   STATE", 1},
		{"another name", "checkin-resource-0f3a9c1b2d 1->950m, 2Gi->1.4Gi True", 1},
		{"another state", "checkout-resource-0f3a9c1b2d 1->950m, 2Gi->1.4Gi False", 1},
		{"a number that is unknown", "checkout-resource-0f3a9c1b2d 1->-, 2Gi->1.4Gi True", 1},
		{"another text", "cost: 12.50 USD a month of 140 USD", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			command := Command{Answer: []string{c.printed}}
			if got := command.Missing(answer); len(got) != c.want {
				t.Errorf("Missing(answer) = %q, want %d lines", got, c.want)
			}
		})
	}

	twice := Command{Answer: []string{"NAME CHANGE READY", "NAME CHANGE READY"}}
	if got := twice.Missing(answer); len(got) != 1 {
		t.Errorf("Missing(answer) of a line that is printed twice = %q, want 1 line", got)
	}
}
