// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const lockFile = `{"lockfileVersion": 3, "packages": {
"": {"name": "dashboard", "dependencies": {"b": "1.0.0", "@scope/a": "2.0.0"}},
"node_modules/b": {"version": "1.0.0", "license": "MIT"},
"node_modules/b/node_modules/c": {"version": "3.0.0"},
"node_modules/@scope/a": {"version": "2.0.0", "license": "ISC"},
"node_modules/typescript": {"version": "7.0.0", "dev": true, "license": "Apache-2.0"},
"node_modules/fsevents": {"version": "1.0.0", "devOptional": true}
}}`

// TestNPMPackagesInSBOM checks that the SBOM of a command with the package web lists the locked packages of npm, and that of another does not.
func TestNPMPackagesInSBOM(t *testing.T) {
	module := newModule(t)
	out := t.TempDir()

	for path, content := range map[string]string{
		"web/assets.go":         "package web\n\nconst Page = \"index.html\"\n",
		"web/package-lock.json": lockFile,
		"cmd/page/page.go":      "package main\n\nimport \"example.com/hello/web\"\n\nfunc main() { println(web.Page) }\n",
	} {
		file := filepath.Join(module, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	build(t, module, out, "--sbom", "page")
	for command, want := range map[string][]string{
		"hello": nil,
		"page": {
			"SPDXRef-npm--scope-a pkg:npm/%40scope/a@2.0.0 ISC", "SPDXRef-npm-b pkg:npm/b@1.0.0 MIT", "SPDXRef-npm-c pkg:npm/c@3.0.0 NOASSERTION",
		},
	} {
		text, err := os.ReadFile(filepath.Join(out, command+"-linux-amd64.spdx.json"))
		if err != nil {
			t.Fatal(err)
		}

		var document spdxDocument
		if err := json.Unmarshal(text, &document); err != nil {
			t.Fatal(err)
		}

		var have []string
		for _, p := range document.Packages[1:] {
			if locator := p.References[0].Locator; strings.HasPrefix(locator, "pkg:npm/") {
				have = append(have, p.ID+" "+locator+" "+p.LicenseDeclared)
				if !slices.Contains(document.Relationships, spdxRelationship{"SPDXRef-binary", "DEPENDS_ON", p.ID}) {
					t.Errorf("%s: no relationship of %s, want one", command, p.ID)
				}
			}
		}

		if !slices.Equal(have, want) {
			t.Errorf("%s: packages %q, want %q", command, have, want)
		}
	}
}

// TestBundledPackages checks which of Crane's commands have packages of npm, and that these are the dependencies of web/package.json.
func TestBundledPackages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "web/package.json"))
	if err != nil {
		t.Fatal(err)
	}

	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}

	if err := json.Unmarshal(text, &manifest); err != nil || len(manifest.Dependencies) == 0 {
		t.Fatalf("%d dependencies, %v, want some", len(manifest.Dependencies), err)
	}

	o := options{source: repository}
	for command, bundled := range map[string]bool{"crane": true, "craned": false} {
		have, err := o.npmPackages(t.Context(), command, &v1.Platform{OS: "linux", Architecture: "amd64"})
		if err != nil || bundled != (len(have) > 0) {
			t.Errorf("%s: packages %v, %v, want some: %v", command, have, err, bundled)
		}

		for name, version := range manifest.Dependencies {
			if bundled && !slices.ContainsFunc(have, func(p npmPackage) bool { return p.name == name && p.version == version && p.license != unknown }) {
				t.Errorf("%s: packages %v, want %s@%s with a license", command, have, name, version)
			}
		}
	}
}
