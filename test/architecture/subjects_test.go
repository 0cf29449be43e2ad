// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// maxSubjects is the largest number of folders directly below internal/.
const maxSubjects = 16

// layers orders the folders of internal/ from the bottom up. A subject imports only subjects of lower layers; subjects
// of one layer do not import each other.
var layers = [][]string{
	{"component"},
	{"kube"},
	{"metrics"},
	{"prediction", "adoption"},
	{"recommendation", "autoscaling", "nodeload"},
	{"dashboard", "migrate"},
	{"scheduler", "agent", "metricadapter", "craned", "cli"},
	{"testbed"},
}

// layerOf returns the layer of a subject, or -1 if the subject is not in the list.
func layerOf(subject string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, subject) })
}

// subjectOf returns the folder of internal/ that contains the package, or "".
func subjectOf(importPath string) string {
	rest, ok := strings.CutPrefix(importPath, module+"/internal/")
	if !ok {
		return ""
	}

	subject, _, _ := strings.Cut(rest, "/")
	return subject
}

// subjectViolations returns the imports of p that do not point to a lower layer, and an unknown subject of p itself.
func subjectViolations(p goPackage) []string {
	from := subjectOf(p.ImportPath)
	if from == "" {
		return nil
	}
	if layerOf(from) < 0 {
		return []string{fmt.Sprintf("%s: internal/%s is not a subject; add the package to one of %v", p.ImportPath, from, layers)}
	}

	var bad []string
	for _, d := range p.Imports {
		if to := subjectOf(d); to != "" && to != from && layerOf(to) >= layerOf(from) {
			bad = append(bad, fmt.Sprintf("%s imports %s: %s is not in a layer below %s (%v)", p.ImportPath, d, to, from, layers))
		}
	}

	return bad
}

func TestSubjectsImportLowerLayers(t *testing.T) {
	subjects := map[string]bool{}
	for _, p := range listPackages(t, "internal") {
		subjects[subjectOf(p.ImportPath)] = true
		for _, v := range subjectViolations(p) {
			t.Error(v)
		}
	}

	if len(subjects) > maxSubjects {
		t.Errorf("internal/ has %d folders, more than %d", len(subjects), maxSubjects)
	}
}

// isController reports whether the package belongs to the controllers of a subject: a folder named controller below
// internal/<subject>/.
func isController(importPath string) bool {
	return subjectOf(importPath) != "" && slices.Contains(strings.Split(importPath, "/"), "controller")
}

// controllerViolations returns the controllers that p imports although it is neither a controller of the same subject
// nor part of craned.
func controllerViolations(p goPackage) []string {
	var bad []string
	for _, d := range p.Imports {
		from := subjectOf(p.ImportPath)
		if isController(d) && from != "craned" && (from != subjectOf(d) || !isController(p.ImportPath)) {
			bad = append(bad, fmt.Sprintf("%s imports %s: only craned imports controllers, so that crane and the agent stay small", p.ImportPath, d))
		}
	}

	return bad
}

func TestControllersAreImportedByCranedAlone(t *testing.T) {
	for _, p := range listPackages(t, "cmd", "internal", "pkg") {
		for _, v := range controllerViolations(p) {
			t.Error(v)
		}
	}
}

// duplicateNames returns packages that share their name with another package of the repository. Packages named main,
// controller or v1alpha1 and packages without code outside tests may share a name.
func duplicateNames(pkgs []goPackage) []string {
	seen := map[string]string{}
	var bad []string
	for _, p := range pkgs {
		if len(p.GoFiles) == 0 || slices.Contains([]string{"main", "controller", "v1alpha1"}, p.Name) || p.isTestOnly() {
			continue
		}

		if other, ok := seen[p.Name]; ok {
			bad = append(bad, fmt.Sprintf("%s and %s are both called %s: rename one", other, p.ImportPath, p.Name))
		}
		seen[p.Name] = p.ImportPath
	}

	return bad
}

// isTestOnly reports whether the package has no code outside tests but doc.go.
func (p goPackage) isTestOnly() bool {
	return len(p.GoFiles) == 1 && p.GoFiles[0] == "doc.go" && strings.Contains(p.ImportPath, "/test/")
}

func TestPackageNamesAreUnique(t *testing.T) {
	for _, v := range duplicateNames(listPackages(t)) {
		t.Error(v)
	}
}

// TestSubjectRulesBite plants a violation of each rule about subjects and expects it to be reported.
func TestSubjectRulesBite(t *testing.T) {
	at := func(path string, imports ...string) goPackage {
		p := goPackage{ImportPath: module + "/internal/" + path, Name: path[strings.LastIndex(path, "/")+1:], GoFiles: []string{"a.go"}}
		for _, i := range imports {
			p.Imports = append(p.Imports, module+"/internal/"+i)
		}

		return p
	}

	for name, tc := range map[string]struct {
		got  []string
		want int
	}{
		"a lower layer is allowed":       {subjectViolations(at("metrics/csv", "kube/workload", "metrics")), 0},
		"a higher layer":                 {subjectViolations(at("kube/workload", "metrics")), 1},
		"the same layer":                 {subjectViolations(at("scheduler/dynamic", "agent/host")), 1},
		"the test bed from a binary":     {subjectViolations(at("cli", "testbed/process")), 1},
		"an unknown subject":             {subjectViolations(at("misc/thing")), 1},
		"craned may import controllers":  {controllerViolations(at("craned", "adoption/controller")), 0},
		"a controller of the subject":    {controllerViolations(at("recommendation/controller", "recommendation/controller/oomrecord")), 0},
		"a controller from the CLI":      {controllerViolations(at("cli", "adoption/controller")), 1},
		"a controller from its subject":  {controllerViolations(at("adoption/webhook", "adoption/controller")), 1},
		"two packages of one name":       {duplicateNames([]goPackage{at("kube/pki"), at("agent/pki")}), 1},
		"controllers may share the name": {duplicateNames([]goPackage{at("a/controller"), at("b/controller")}), 0},
	} {
		if len(tc.got) != tc.want {
			t.Errorf("%s: got %d violations %q, want %d", name, len(tc.got), tc.got, tc.want)
		}
	}
}
