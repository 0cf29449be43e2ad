// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"fmt"
	"slices"
	"testing"

	"crane.io/crane/internal/component/atomicfile"
	"crane.io/crane/test/powerlossfs"
)

// TestPowerLoss checks that a power loss at any step of a replacement leaves the old or the new content, and after its end the new one.
func TestPowerLoss(t *testing.T) {
	const path = "/state/file"
	for name, begin := range map[string][]string{"first": nil, "second": {"old"}, "after one that was cut off": {"older", "old"}} {
		t.Run(name, func(t *testing.T) {
			disk := powerlossfs.New()
			want := []string{"none"}
			for _, content := range begin {
				if err := atomicfile.ReplaceOn(disk, path, []byte(content)); err != nil {
					t.Fatal(err)
				}

				want = []string{"have " + content}
			}

			steps := 0
			may := append(slices.Clone(want), "have new")
			disk.Step = func() {
				steps++
				for _, s := range possibleContents(disk, path) {
					if !slices.Contains(may, s) {
						t.Errorf("after step %d: %s, want one of %v", steps, s, may)
					}
				}
			}

			if err := atomicfile.ReplaceOn(disk, path, []byte("new")); err != nil {
				t.Fatal(err)
			}

			if got := possibleContents(disk, path); !slices.Equal(got, []string{"have new"}) {
				t.Errorf("after Replace the possible contents are %v, want only the new one", got)
			}
			if steps < 5 {
				t.Errorf("Replace took %d steps, want at least 5", steps)
			}
		})
	}
}

// unsyncedDisk is a disk that skips the syncs of contents or names.
type unsyncedDisk struct {
	*powerlossfs.Disk
	content, names bool // are synced
}

type unsyncedFile struct{ atomicfile.File }

func (unsyncedFile) Sync() error { return nil }

func (c unsyncedDisk) Create(path string) (atomicfile.File, error) {
	f, err := c.Disk.Create(path)
	if !c.content {
		f = unsyncedFile{f}
	}

	return f, err
}

func (c unsyncedDisk) SyncDir(path string) error {
	if !c.names {
		return nil
	}

	return c.Disk.SyncDir(path)
}

// TestPowerLossWithoutSync checks that a power loss is noticed if a sync is missing.
func TestPowerLossWithoutSync(t *testing.T) {
	const path = "/state/file"
	for _, test := range []struct {
		content, names bool
		want           string
	}{{false, true, "have ne"}, {true, false, "have old"}} {
		disk := powerlossfs.New()
		if err := atomicfile.ReplaceOn(disk, path, []byte("old")); err != nil {
			t.Fatal(err)
		}

		if err := atomicfile.ReplaceOn(unsyncedDisk{disk, test.content, test.names}, path, []byte("newer")); err != nil {
			t.Fatal(err)
		}

		if got := possibleContents(disk, path); !slices.Contains(got, test.want) {
			t.Errorf("content synced %t, names %t: %v, want %s among them", test.content, test.names, got, test.want)
		}
	}
}

// possibleContents formats the contents that a file may have after a power loss.
func possibleContents(disk *powerlossfs.Disk, path string) (out []string) {
	for _, content := range disk.PossibleContents(path) {
		if content == nil {
			out = append(out, "none")
			continue
		}

		out = append(out, fmt.Sprintf("have %s", content))
	}

	return out
}
