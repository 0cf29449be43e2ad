// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/pkg/qos"
)

// TestExamplesOfGocrane checks that each rule of gocrane's examples is evaluated, with its action.
func TestExamplesOfGocrane(t *testing.T) {
	const folder = "../../../../shared/gocrane/examples/ensurance"
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("gocrane's examples are not beside the repository: %v", err)
	}

	read := func(path string) string {
		t.Helper()

		content, err := os.ReadFile(filepath.Join(folder, path))
		if err != nil {
			t.Fatal(err)
		}

		return string(content)
	}

	files := 0
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.Contains(read(name), "kind: NodeQOS") {
			return err
		}

		files++
		text := read(name)
		for _, action := range []string{"disablescheduling", "eviction", "throttle"} {
			if !strings.Contains(text, "kind: AvoidanceAction\nmetadata:\n  name: "+action+"\n") {
				text += "\n---\n" + read(action+".yaml")
			}
		}

		set, err := Parse([]byte(text))
		if err != nil {
			t.Errorf("Parse of %s: %v", name, err)
			return nil
		}

		policy, problems := set.Policy(nil, qos.DefaultLimits())
		if len(problems) > 0 || len(policy.Rules) != 1 || policy.Rules[0].Action.Name != set.NodeQOS[0].Spec.Rules[0].AvoidanceActionName {
			t.Errorf("%s: problems %q, rules %+v; want one rule with its action and no problem", name, problems, policy.Rules)
		}

		return nil
	})

	if err != nil || files == 0 {
		t.Errorf("read %d files, %v, want at least one", files, err)
	}
}
