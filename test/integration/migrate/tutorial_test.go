// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTutorial runs the commands of docs/tutorials/migrate-from-gocrane.md as printed.
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
	commands := regexp.MustCompile(`(?m)^\$ crane (.*)$`).FindAllStringSubmatch(string(page), -1)

	codes := []int{4, 0, 0, 0, 4, 0, 0, 0, 0}
	if len(commands) != len(codes) {
		t.Fatalf("%d commands, want %d", len(commands), len(codes))
	}

	for i, c := range commands {
		out, errOut, code := f.crane(f.control.Kubeconfig(), strings.Fields(c[1])...)
		if code != codes[i] {
			t.Fatalf("crane %s: exit code %d, want %d as on the page: %s%s", c[1], code, codes[i], out, errOut)
		}

		if c[1] == "migrate undo" {
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
