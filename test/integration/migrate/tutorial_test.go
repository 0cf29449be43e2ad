// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/test/consolepage"
)

// TestTutorial runs the commands of docs/tutorials/migrate-from-gocrane.md as printed, and compares their answers with the page.
func TestTutorial(t *testing.T) {
	needsFixtures(t)
	f := newFixture(t)
	f.install("helm", "crane-system", smallSize())
	f.simulate()
	f.settle()

	page, err := os.ReadFile("../../../docs/tutorials/migrate-from-gocrane.md")
	if err != nil {
		t.Fatal(err)
	}

	t.Chdir(t.TempDir())
	before := f.snapshot()
	commands := consolepage.Commands(string(page))

	codes := []int{4, 0, 0, 0, 4, 0, 0, 0, 0, 3}
	if len(commands) != len(codes) {
		t.Fatalf("%d commands, want %d", len(commands), len(codes))
	}

	for i, c := range commands {
		arguments, ok := strings.CutPrefix(c.Line, "crane ")
		if !ok {
			t.Fatalf("command %q, want one of crane", c.Line)
		}

		out, errOut, code := f.crane(f.control.Kubeconfig(), strings.Fields(arguments)...)
		t.Logf("$ %s\n%s%s", c.Line, out, errOut)

		if code != codes[i] {
			t.Fatalf("%s: exit code %d, want %d as on the page: %s%s", c.Line, code, codes[i], out, errOut)
		}

		if missing := c.Missing(out + "\n" + errOut); len(missing) > 0 {
			t.Errorf("$ %s answers\n%s%s\nwant lines of the shape of these, as the page prints:\n%s", c.Line, out, errOut, strings.Join(missing, "\n"))
		}

		if arguments == "migrate undo" {
			f.settle()
			f.compare("undo", before)
		}
	}

	f.checkExport("gocrane-backup")
}

// checkExport checks that the files can be created in another cluster: here, that none has a field of this one.
func (f *fixture) checkExport(dir string) {
	f.Helper()

	counts := map[string]int{}
	for _, folder := range []string{"backup", "import"} {
		err := filepath.WalkDir(filepath.Join(dir, folder), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(path, "1-namespaces") {
				return err
			}

			counts[folder]++
			content, err := os.ReadFile(path)
			if folder == "import" && slices.ContainsFunc([]string{"uid:", "resourceVersion:", "ownerReferences:", "\nstatus:"}, func(s string) bool { return strings.Contains(string(content), s) }) {
				f.Errorf("%s has fields of this cluster, want none:\n%s", path, content)
			}

			return err
		})
		if err != nil {
			f.Fatal(err)
		}
	}

	values, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil || !strings.Contains(string(values), "kind: RecommendationConfiguration") {
		f.Errorf("the values of the chart lack the configuration of recommenders, want it: %v\n%s", err, values)
	}

	// The EHPAs, EVPAs, predictions, rules, three objects of ensurance and a ClusterNodePrediction.
	s := f.installation.size
	if want := s.ehpas + s.evpas + s.tsps + s.rules + 4; counts["import"] != want {
		f.Errorf("%d objects to import, want %d", counts["import"], want)
	}
	if counts["backup"] < len(f.installation.owned) {
		f.Errorf("%d objects in the backup, want %d", counts["backup"], len(f.installation.owned))
	}
}
