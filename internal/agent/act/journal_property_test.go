// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"crane.io/crane/internal/agent/host/cgroup"
)

// TestJournalHolds checks for random changes, undos and restarts that at the end each file has its original value or the last one set by
// another process, also if that one writes while units hold the file. All values differ: one that a unit has set itself cannot be told from it.
func TestJournalHolds(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		n := newFixture(t, v1)
		file := cgroup.FileWeight
		least := 1
		if v1 {
			file = cgroup.FileSharesV1
			least = 2
		}

		for seed := range uint64(40) {
			rng := rand.New(rand.NewPCG(seed, 1))
			last := 100
			value := func() string {
				last += least
				return strconv.Itoa(last)
			}

			n.put(t, n.group, file, "77")
			want := "77"
			open := func() *Journal {
				j := n.open(t, n.tree)
				j.replace = replaceUnsynced
				return j
			}

			j := open()
			var log strings.Builder
			for range 30 {
				key := string(rune('a'+rng.IntN(3))) + "/x"
				var err error
				switch do := rng.IntN(10); {
				case do < 5:
					v := value()
					fmt.Fprintf(&log, " %s=%s", key, v)
					err = j.Change(Unit{Key: key, Changes: []Change{{Group: n.group, File: file, Value: v}}})
				case do < 7:
					log.WriteString(" undo " + key)
					err = j.Undo(key)
				case do < 8:
					log.WriteString(" undo kind")
					err = j.UndoKind(key[:1])

				case do < 9:
					log.WriteString(" restart")
					j = open()
				default:
					want = value()
					log.WriteString(" other=" + want)
					n.put(t, n.group, file, want)
				}

				if err != nil {
					t.Fatalf("seed %d:%s: %v", seed, log.String(), err)
				}

				if len(j.Entries()) == 0 && n.get(t, n.group, file) != want {
					t.Fatalf("seed %d:%s: nothing is held and %s is there, want %s", seed, log.String(), n.get(t, n.group, file), want)
				}
			}

			if err := open().UndoAll(); err != nil || n.get(t, n.group, file) != want {
				t.Fatalf("seed %d:%s: %v, %s at the end, want %s", seed, log.String(), err, n.get(t, n.group, file), want)
			}
		}
	}
}

// TestJournalOthers checks that values set by another process while units hold a file are kept in any order of undos.
func TestJournalOthers(t *testing.T) {
	for _, keys := range [][]string{{"a/x"}, {"b/x"}, {"a/x", "b/x"}, {"b/x", "a/x"}} {
		n := newFixture(t, false)
		j := n.open(t, n.tree)
		n.change(t, j, "a/x", "50")
		n.change(t, j, "b/x", "20")
		n.put(t, n.group, cgroup.FileWeight, "66")

		for _, key := range keys {
			if err := j.Undo(key); err != nil {
				t.Error(err)
			}
		}

		if err := j.UndoAll(); err != nil || n.weight(t) != "66" {
			t.Errorf("%v: %v, weight %s, want 66", keys, err, n.weight(t))
		}
	}
}

// TestDiskFills checks that a full disk prevents changes but not the undo of earlier ones.
func TestDiskFills(t *testing.T) {
	n := newFixture(t, false)
	j := n.open(t, n.tree)
	n.change(t, j, "a/x", "50")
	n.change(t, j, "b/x", "20")

	j.replace = func(string, []byte) error { return syscall.ENOSPC }
	for _, key := range []string{"a/x", "b/x", "c/x"} {
		if err := j.Change(n.weightOf(key, "10")); !errors.Is(err, ErrJournal) || !errors.Is(err, syscall.ENOSPC) || n.weight(t) != "20" {
			t.Errorf("Change(%s) on a full disk = %v with weight %s, want ErrJournal and weight 20", key, err, n.weight(t))
		}
	}

	if e, ok := j.Entry("b/x"); !ok || e.Files[0].Original != "50" || e.Files[0].Set != "20" || len(j.Entries()) != 2 {
		t.Errorf("entries are %+v, want two, b/x from 50 to 20", j.Entries())
	}
	if err := j.UndoAll(); !errors.Is(err, syscall.ENOSPC) || n.weight(t) != "100" {
		t.Errorf("undoThrottles on a full disk = %v with weight %s, want ENOSPC and weight 100", err, n.weight(t))
	}
	// The file still lists undone changes, which the next start finds no longer in force.
	if err := n.open(t, n.tree).UndoAll(); err != nil || n.weight(t) != "100" {
		t.Errorf("undoThrottles after the next start = %v with weight %s, want nil and weight 100", err, n.weight(t))
	}
}
