// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLimitations: settings that the node cannot fulfill are removed; nothing else changes.
func TestLimitations(t *testing.T) {
	for name, c := range map[string]struct {
		content, want string
		process       bool // alone
		bounds        limitations
	}{
		"score too low": {
			content: `{"ociVersion":"1.2.1","process":{"args":["x"],"oomScoreAdj":-997,"rlimits":[18446744073709551615]}}`,
			want:    `{"ociVersion":"1.2.1","process":{"args":["x"],"oomScoreAdj":0,"rlimits":[18446744073709551615]}}`,
			bounds:  limitations{noResource: true},
		},
		"all capabilities": {
			content: `{"process":{"capabilities":{"bounding":["CAP_KILL","CAP_SYS_RESOURCE"],"effective":["CAP_KILL"]}}}`,
			want:    `{"process":{"capabilities":{"bounding":["CAP_KILL"],"effective":["CAP_KILL"]}}}`, bounds: limitations{noResource: true},
		},
		"node may all":          {content: `{"process": {"oomScoreAdj": -997, "capabilities": {"bounding": ["CAP_SYS_RESOURCE"]}}}`, want: `{"process": {"oomScoreAdj": -997, "capabilities": {"bounding": ["CAP_SYS_RESOURCE"]}}}`},
		"score allowed":         {content: `{"process": {"oomScoreAdj": 1000}}`, want: `{"process": {"oomScoreAdj": 1000}}`, bounds: limitations{noResource: true}},
		"own score is negative": {content: `{"process": {"oomScoreAdj": -500}}`, want: `{"process": {"oomScoreAdj": -500}}`, bounds: limitations{noResource: true, ownScore: -999}},
		"none given":            {content: `{"process": {"args": []}}`, want: `{"process": {"args": []}}`},
		"no process":            {content: `{"root": {}}`, want: `{"root": {}}`},
		"process alone":         {content: `{"args":["x"],"oomScoreAdj":-998}`, want: `{"args":["x"],"oomScoreAdj":0}`, process: true, bounds: limitations{noResource: true}},
		"process alone, plain":  {content: `{"args": ["x"]}`, want: `{"args": ["x"]}`, process: true},
		"no hugetlb": {
			content: `{"linux":{"resources":{"cpu":{"shares":2},"hugepageLimits":[{"limit":0,"pageSize":"2MB"}]}}}`,
			want:    `{"linux":{"resources":{"cpu":{"shares":2}}}}`, bounds: limitations{noHugetlb: true},
		},
		"hugetlb": {
			content: `{"linux": {"resources": {"hugepageLimits": []}}}`, want: `{"linux": {"resources": {"hugepageLimits": []}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.bounds.apply([]byte(c.content), !c.process)
			if err != nil || string(got) != c.want {
				t.Errorf("apply(%s) = %s, error %v; want %s", c.content, got, err, c.want)
			}
		})
	}

	for _, bad := range []string{"", "[]", "1", `{"process": {"oomScoreAdj": "low"}}`, `{"process": {"oomScoreAdj": 0.5}}`} {
		if got, err := (limitations{noResource: true}).apply([]byte(bad), true); err == nil {
			t.Errorf("apply(%q) = %s, want an error", bad, got)
		}
	}
}

func TestDetectLimitations(t *testing.T) {
	dir := t.TempDir()
	score := filepath.Join(dir, "score")
	if err := os.WriteFile(score, []byte("-5\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if l, err := detectLimitations(score, dir); err != nil || l.ownScore != -5 || !l.noHugetlb {
		t.Errorf("detectLimitations without hugetlb = %+v, error %v; want score -5 and no hugetlb", l, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "hugetlb"), 0o700); err != nil {
		t.Fatal(err)
	}

	if l, err := detectLimitations(score, dir); err != nil || l.noHugetlb {
		t.Errorf("detectLimitations with hugetlb = %+v, error %v; want hugetlb", l, err)
	}
	if l, err := detectLimitations(filepath.Join(dir, "none"), dir); err == nil {
		t.Errorf("detectLimitations without a score = %+v, want an error", l)
	}
}

func TestStartFile(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		file  string
		whole bool
	}{
		"create":    {[]string{"runc", "--root", "/run/runc", "create", "--bundle", "/b", "--pid-file", "/p", "id"}, "/b/config.json", true},
		"short":     {[]string{"runc", "create", "-b", "/b", "id"}, "/b/config.json", true},
		"with sign": {[]string{"runc", "create", "--bundle=/b", "id"}, "/b/config.json", true},
		"exec":      {[]string{"runc", "exec", "--pid-file", "/p", "--process", "/x.json", "id"}, "/x.json", false},
		"state":     {[]string{"runc", "state", "id"}, "", false},
		"cut off":   {[]string{"runc", "exec", "--process"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if file, whole := startFile(c.args); file != c.file || whole != c.whole {
				t.Errorf("startFile(%q) = %q, %v; want %q, %v", c.args, file, whole, c.file, c.whole)
			}
		})
	}
}
