// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecordedJournals checks that this agent undoes what an older one has changed, by the journals that older releases wrote: version 1 by
// the writer of commit e13f452c, version 2 by the first writer of that version, commit 1981a39f. Each was written with container c throttled
// twice, from 40 ms with a burst of 20 ms to 10 ms of 100 ms.
func TestRecordedJournals(t *testing.T) {
	for name, test := range map[string]struct {
		file     string
		cgroupV1 bool
	}{
		"version 1, cgroup v1": {"journal-v1-e13f452c.json", true},
		"version 1, cgroup v2": {"journal-v1-e13f452c.json", false},
		"version 2, cgroup v1": {"journal-v2-1981a39f-cgroup-v1.json", true},
		"version 2, cgroup v2": {"journal-v2-1981a39f-cgroup-v2.json", false},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join("testdata", test.file))
			if err != nil {
				t.Fatal(err)
			}

			n := newFixture(t, test.cgroupV1)
			n.set(t, map[bool]string{true: "10000", false: "10000 100000"}[test.cgroupV1], "10000")

			if err := os.WriteFile(n.journal, content, 0o600); err != nil {
				t.Fatal(err)
			}

			j := n.open(t, n.tree)
			if got := n.limit(t); len(j.Entries()) != 1 || got != "10ms of 100ms burst 10ms" {
				t.Fatalf("the journal has %d entries and the limit is %s, want 1 and 10ms", len(j.Entries()), got)
			}

			if err := j.UndoAll(); err != nil || n.limit(t) != "40ms of 100ms burst 20ms" {
				t.Errorf("undoThrottles = %v with limit %s, want nil and 40ms with a burst of 20ms", err, n.limit(t))
			}
			if left := n.open(t, n.tree).Entries(); len(left) > 0 {
				t.Errorf("after UndoAll the journal has %+v, want no entries", left)
			}
		})
	}
}

// TestDowngradedJournal checks the way back: the journal that this agent writes, with the number of the next version, is refused and kept by
// this agent, which is the older one then, and the newer agent undoes it after its return.
func TestDowngradedJournal(t *testing.T) {
	n := newFixture(t, false)
	n.set(t, "40000 100000", "20000")

	th := n.throttler(t, n.tree)
	for _, step := range steps()[:2] {
		if err := th.Throttle(step, n.group); err != nil {
			t.Fatal(err)
		}
	}

	written, err := os.ReadFile(n.journal)
	if err != nil {
		t.Fatal(err)
	}

	newer := []byte(strings.Replace(string(written), `"version":2`, `"version":3`, 1))
	if bytes.Equal(newer, written) {
		t.Fatalf("the journal is %s, want its version in it", written)
	}

	if err := os.WriteFile(n.journal, newer, 0o600); err != nil {
		t.Fatal(err)
	}

	if j, err := OpenJournal(n.journal, n.layout, n.tree); j != nil || err == nil || n.limit(t) != "10ms of 100ms burst 10ms" {
		t.Errorf("OpenJournal of a newer version = %+v, %v with limit %s, want nil, an error and 10ms", j, err, n.limit(t))
	}
	if kept, err := os.ReadFile(n.journal); err != nil || !bytes.Equal(kept, newer) {
		t.Errorf("the journal of a newer version has %q, %v, want it unchanged", kept, err)
	}
	if err := os.WriteFile(n.journal, written, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := n.open(t, n.tree).UndoAll(); err != nil || n.limit(t) != "40ms of 100ms burst 20ms" {
		t.Errorf("undoThrottles = %v with limit %s, want nil and 40ms with a burst of 20ms", err, n.limit(t))
	}
}
