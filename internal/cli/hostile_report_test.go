// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/recommendation/requestpatch"
)

// hostileReport is the report of the fixtures with hostile names.
func hostileReport(t *testing.T) *report {
	t.Helper()

	r := pricedFixtureReport(t)
	r.PolicyName = "mine\n---\nkind: ClusterRoleBinding\n" + hostileText
	for i := range r.Items {
		item := &r.Items[i]
		item.Workload.Name += hostileText
		item.Workload.Namespace += hostileText
		item.Workload.UID = "uid"
		for c := range item.Plan.Containers {
			old := item.Plan.Containers[c].Container
			item.Plan.Containers[c].Container += hostileText
			for w := range item.Workload.Containers {
				if item.Workload.Containers[w].Name == old {
					item.Workload.Containers[w].Name += hostileText
				}
			}
		}
	}

	return r
}

// TestHostileReport checks every output format of a report, and the tables and explanations of a terminal of any width with colors.
func TestHostileReport(t *testing.T) {
	outputs := map[string]func(Streams, *report) error{
		"explain":       renderExplain,
		"wide colors":   func(s Streams, r *report) error { return writeTable(s.Out, r, 200, true) },
		"narrow colors": func(s Streams, r *report) error { return writeTable(s.Out, r, 60, true) },
		"groups":        func(s Streams, r *report) error { r.groupBy = byWorkload; return renderTable(s.Out, r) },
	}
	for _, format := range outputFormats() {
		outputs[format] = rendererFor(format)
	}

	for name, render := range outputs {
		t.Run(name, func(t *testing.T) {
			var out, notes bytes.Buffer
			if err := render(Streams{Out: termtext.NewWriter(&out), Err: termtext.NewWriter(&notes)}, hostileReport(t)); err != nil {
				t.Fatalf("rendering: %v", err)
			}

			text := out.String() + notes.String()
			for _, style := range []string{termtext.Bold, termtext.Faint, termtext.Green, termtext.Yellow, termtext.Reset} {
				text = strings.ReplaceAll(text, style, "")
			}

			if !termtext.IsSafe(text) {
				t.Errorf("the output has control characters: %q", shorten(text))
			}

			// Lines of HTML mean nothing, and a paragraph is wrapped at any word.
			if name == outputHTML || name == "explain" {
				return
			}

			for line := range strings.SplitSeq(text, "\n") {
				if strings.HasPrefix(line, "FORGED") || line == "kind: ClusterRoleBinding" {
					t.Errorf("a name is a line of the output: %q", line)
				}
			}
		})
	}
}

// TestHostileManifests checks that hostile names add no document to manifests and keep their value in them.
func TestHostileManifests(t *testing.T) {
	for _, format := range append(requestpatch.Formats(), outputYAML) {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			if err := rendererFor(format)(Streams{Out: termtext.NewWriter(&out), Err: io.Discard}, hostileReport(t)); err != nil {
				t.Fatalf("rendering: %v", err)
			}

			documents := strings.Split(out.String(), "\n---\n")
			if format != requestpatch.StrategicMerge && len(documents) != 1 {
				t.Errorf("the output has %d documents, want 1:\n%s", len(documents), out.String())
			}

			found := false
			for _, document := range documents {
				var value any
				if err := yaml.Unmarshal([]byte(document), &value); err != nil {
					t.Fatalf("a document is no YAML: %v\n%s", err, document)
				}

				if fields, ok := value.(map[string]any); ok && fields["kind"] == "ClusterRoleBinding" {
					t.Errorf("the name of the policy added a document:\n%s", document)
				}

				encoded, err := json.Marshal(value)
				if err != nil {
					t.Fatal(err)
				}

				// The name of a container, as JSON writes it, is a text of the document; a patch in a patch has it once more encoded.
				hostile, err := json.Marshal("app" + hostileText)
				if err != nil {
					t.Fatal(err)
				}

				found = found || strings.Contains(string(encoded), string(hostile)) || format == requestpatch.Kustomize && containsIn(value, "app"+hostileText)
			}

			if !found {
				t.Errorf("the output lacks the name of the container:\n%s", out.String())
			}
		})
	}
}

// containsIn reports whether a patch, which is YAML in YAML, has a text.
func containsIn(value any, text string) bool {
	patches, _ := value.(map[string]any)["patches"].([]any)
	for _, patch := range patches {
		var inner any
		source, _ := patch.(map[string]any)["patch"].(string)
		if yaml.Unmarshal([]byte(source), &inner) == nil && hasText(reflect.ValueOf(inner), text) {
			return true
		}
	}

	return false
}

func hasText(value reflect.Value, text string) bool {
	for value.Kind() == reflect.Interface {
		value = value.Elem()
	}

	switch value.Kind() {
	case reflect.String:
		return value.String() == text
	case reflect.Map:
		for _, key := range value.MapKeys() {
			if hasText(key, text) || hasText(value.MapIndex(key), text) {
				return true
			}
		}
	case reflect.Slice:
		for i := range value.Len() {
			if hasText(value.Index(i), text) {
				return true
			}
		}
	default:
	}

	return false
}
