// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"os"
	"slices"
	"testing"

	"crane.io/crane/internal/component/atomicfile"
	"crane.io/crane/test/powerlossfs"
)

// countingWriter is a kernel that reports each write.
type countingWriter struct {
	FileWriter
	step func()
}

func (c countingWriter) Write(file, value string) error {
	err := c.FileWriter.Write(file, value)
	c.step()
	return err
}

// TestUnsynced checks that at any end of an agent each journal that a disk may hold after losing unsynced data is sufficient to undo
// everything. A kernel that keeps limits although its disk lost data exceeds a power loss, which resets limits.
func TestUnsynced(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for name, a := range journalActions(v1) {
			if !slices.Contains([]string{"quota and burst in a pod", "idle", "cpus of pod and container", "memory.high"}, name) {
				continue // TestKilled covers them; the disk behaves the same.
			}

			t.Run(map[bool]string{false: "v2 ", true: "v1 "}[v1]+name, func(t *testing.T) {
				n := a.prepare(t, v1)
				clean := n.files(t)
				settings := n.settings(t)

				steps, several := 0, 0
				for died := true; died; steps++ {
					n.reset(t, clean)
					var found [][]byte
					found, died = a.unsynced(t, n, steps)
					if len(found) > 1 {
						several++
					}

					state := n.files(t)
					for _, journal := range found {
						n.reset(t, state)
						if journal != nil {
							if err := os.WriteFile(n.journal, journal, 0o600); err != nil {
								t.Fatal(err)
							}
						}

						if changed := n.undone(t, settings); len(changed) > 0 {
							t.Errorf("power lost at step %d with journal %s: settings %v, want the original ones", steps, journal, changed)
						}
					}
				}

				if steps < 15 || several == 0 {
					t.Errorf("%d steps, %d of them with more than one possible journal; want at least 15 and 1", steps, several)
				}
			})
		}
	}
}

// unsynced runs an action with an agent that ends at a step and returns the possible journals.
func (a journalAction) unsynced(t *testing.T, n fixture, at int) (found [][]byte, died bool) {
	t.Helper()

	disk := powerlossfs.New()
	step := func() {
		at--

		if at < 0 {
			panic(killedPanic{})
		}
	}

	disk.Step = step
	died = dies(t, func() error {
		j := n.open(t, countingWriter{n.tree, step})
		j.replace = func(path string, content []byte) error { return atomicfile.ReplaceOn(disk, path, content) }
		return a.do(n, j)
	})

	return disk.PossibleContents(n.journal), died
}
