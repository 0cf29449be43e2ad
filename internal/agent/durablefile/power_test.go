// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package durablefile_test

import (
	"fmt"
	"slices"
	"testing"

	"crane.io/crane/internal/agent/durablefile"
	"crane.io/crane/internal/agent/durablefile/powerlossfs"
)

// TestPowerLoss: wherever the power is lost in a replacement, the old content or the new is found, and once it has returned the new one.
func TestPowerLoss(t *testing.T) {
	const path = "/state/file"
	for name, begin := range map[string][]string{"first": nil, "second": {"old"}, "after one that was cut off": {"older", "old"}} {
		t.Run(name, func(t *testing.T) {
			disk, want := powerlossfs.New(), []string{"none"}
			for _, content := range begin {
				if err := durablefile.ReplaceOn(disk, path, []byte(content)); err != nil {
					t.Fatal(err)
				}
				want = []string{"have " + content}
			}
			steps := 0
			may := append(slices.Clone(want), "have new")
			disk.Step = func() {
				steps++
				for _, s := range found(disk, path) {
					if !slices.Contains(may, s) {
						t.Errorf("after step %d: %s, want one of %v", steps, s, may)
					}
				}
			}
			if err := durablefile.ReplaceOn(disk, path, []byte("new")); err != nil {
				t.Fatal(err)
			}
			if got := found(disk, path); !slices.Equal(got, []string{"have new"}) {
				t.Errorf("afterwards: %v", got)
			}
			if steps < 5 {
				t.Errorf("%d steps", steps)
			}
		})
	}
}

// careless are disks on which somebody has forgotten something.
type careless struct {
	*powerlossfs.Disk
	content, names bool // are synced
}

type carelessFile struct{ durablefile.File }

func (carelessFile) Sync() error { return nil }

func (c careless) Create(path string) (durablefile.File, error) {
	f, err := c.Disk.Create(path)
	if !c.content {
		f = carelessFile{f}
	}
	return f, err
}

func (c careless) SyncDir(path string) error {
	if !c.names {
		return nil
	}
	return c.Disk.SyncDir(path)
}

// TestPowerlessBites: who does not sync loses.
func TestPowerlessBites(t *testing.T) {
	const path = "/state/file"
	for _, test := range []struct {
		content, names bool
		want           string
	}{{false, true, "have ne"}, {true, false, "have old"}} {
		disk := powerlossfs.New()
		if err := durablefile.ReplaceOn(disk, path, []byte("old")); err != nil {
			t.Fatal(err)
		}
		if err := durablefile.ReplaceOn(careless{disk, test.content, test.names}, path, []byte("newer")); err != nil {
			t.Fatal(err)
		}
		if got := found(disk, path); !slices.Contains(got, test.want) {
			t.Errorf("content synced %t, names %t: %v, want %s among them", test.content, test.names, got, test.want)
		}
	}
}

// found is what may be found of a file.
func found(disk *powerlossfs.Disk, path string) (out []string) {
	for _, content := range disk.Survivors(path) {
		if content == nil {
			out = append(out, "none")
			continue
		}
		out = append(out, fmt.Sprintf("have %s", content))
	}
	return out
}
