// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/kube/manifest"
)

// chartFiles stands for the files of a chart; the keys are not among the fixtures.
type chartFiles struct{ cert string }

// Get returns a certificate for any file.
func (f chartFiles) Get(string) string { return f.cert }

// chart is what Helm knows of a chart when it renders one.
type chart struct {
	Name, Version, AppVersion string
	values                    map[string]any
	text                      string
}

// chart returns one of gocrane's charts and its objects.
func (f *fixture) chart(name, namespace string) (chart, []*object) {
	f.Helper()

	if !hasFixtures() {
		return f.standInChart(name, namespace)
	}

	return renderChart(f.T, name, namespace)
}

// renderChart renders one of gocrane's charts with the few functions of Helm that it uses. The release has the name of the chart.
func renderChart(t *testing.T, name, namespace string) (chart, []*unstructured.Unstructured) {
	t.Helper()

	dir := fixtureFile(filepath.Join("charts", name))
	var c chart
	read := func(file string, into any) {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err == nil {
			err = yaml.Unmarshal(content, into)
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	read("Chart.yaml", &c)
	read("values.yaml", &c.values)
	root := template.New(name)
	data := map[string]any{
		"Values": c.values, "Chart": c, "Files": chartFiles{"certificate"},
		"Release":      map[string]any{"Name": name, "Namespace": namespace, "Service": "Helm"},
		"Capabilities": map[string]any{"KubeVersion": map[string]any{"Minor": "25"}},
	}

	root.Funcs(helmFunctions(root))
	files, err := filepath.Glob(filepath.Join(dir, "templates", "*"))
	if err != nil {
		t.Fatal(err)
	}

	slices.Sort(files)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err == nil {
			_, err = root.New(filepath.Base(file)).Parse(string(content))
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	var text strings.Builder
	for _, file := range files {
		if filepath.Ext(file) != ".yaml" {
			continue
		}

		text.WriteString("\n---\n")
		if err := root.ExecuteTemplate(&text, filepath.Base(file), data); err != nil {
			t.Fatal(err)
		}
	}

	c.text = text.String()
	objects, err := manifest.ParseString(c.text)
	if err != nil {
		t.Fatal(err)
	}

	return c, objects
}

func helmFunctions(root *template.Template) template.FuncMap {
	indent := func(n int, text string) string {
		return "\n" + strings.Repeat(" ", n) + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", n))
	}

	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b bytes.Buffer
			err := root.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"toYaml": func(v any) (string, error) {
			b, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(b), "\n"), err
		},
		"nindent": indent,
		"default": func(fallback, v any) any {
			if v == nil || v == "" {
				return fallback
			}

			return v
		},
		"b64enc":        func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"quote":         func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
		"contains":      func(part, s string) bool { return strings.Contains(s, part) },
		"trunc":         func(n int, s string) string { return s[:min(n, len(s))] },
		"trimSuffix":    func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
		"replace":       func(from, to, s string) string { return strings.ReplaceAll(s, from, to) },
		"empty":         func(v any) bool { return v == nil || v == "" },
		"semverCompare": func(string, string) bool { return true },
		"fail":          func(s string) (string, error) { return "", fmt.Errorf("%s", s) },
	}
}
