// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetemplate

import (
	"strings"
	"testing"
	"text/template"
)

func testData() map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "n1", "labels": map[string]any{"pool": "mixed", "zone": "a"}, "gone": nil},
		"spec":     map[string]any{"ready": true, "weight": 2.5, "cores": int64(16), "empty": "", "none": []any{}},
		"status": map[string]any{"addresses": []any{
			map[string]any{"type": "InternalIP", "address": "10.0.0.1"}, map[string]any{"type": "Hostname", "address": "n1"}, map[string]any{"type": "ExternalIP", "address": "1.2.3.4"},
		}},
	}
}

func render(text string) (string, error) {
	var out limitedBuffer
	err := execute("spec", text, testData(), &out)
	return out.buf.String(), err
}

// addTemplates adds templates of all actions, some of which are wrong.
func addTemplates(add func(string)) {
	for _, text := range []string{
		"", "plain", "{{.metadata.name}}", "{{- .metadata.name -}} x", "{{/* comment */}}", "{{.}}", "{{$.metadata.name}}", "{{.spec.weight}} {{.spec.cores}} {{.spec.ready}} {{1.5}} {{0x10}} {{'a'}} {{1e3}}",
		"{{range .status.addresses}}|{{.address}}{{end}}", "{{range $i, $a := .status.addresses}}{{if $i}}|{{end}}{{$a.address}}{{end}}", "{{range $k, $v := .metadata.labels}}{{$k}}={{$v}},{{end}}",
		"{{range $a := .status.addresses}}{{$a.type}}{{$.metadata.name}}{{end}}", "{{range .spec.none}}x{{else}}none{{end}}", "{{range 3}}{{.}}{{end}}", "{{range $i := 3}}{{$i}}{{end}}", "{{range $i, $e := 3}}{{$i}}{{end}}",
		`{{range .status.addresses}}{{if eq .type "Hostname"}}{{break}}{{end}}{{.address}}{{end}}`, `{{range .status.addresses}}{{if eq .type "Hostname" "ExternalIP"}}{{continue}}{{end}}{{.address}}{{end}}`,
		"{{break}}", "{{range .metadata.name}}x{{end}}", "{{range .metadata.gone}}x{{else}}y{{end}}",
		`{{$x := 1}}{{if .spec.ready}}{{$x = 2}}{{$y := 3}}{{$y}}{{end}}{{$x}}`, `{{$x := 1}}{{with .metadata}}{{$x := .name}}{{$x}}{{end}}{{$x}}`, "{{$n := .metadata}}{{$n.labels.pool}}",
		`{{$x := ""}}{{range .status.addresses}}{{$x = .address}}{{end}}{{$x}}`, "{{$k := 1}}{{$v := 2}}{{range $k, $v = .metadata.labels}}{{$k}}{{end}}{{$k}}{{$v}}",
		"{{with .metadata.labels}}{{.pool}}{{end}}", "{{with .spec.empty}}x{{else with .metadata}}{{.name}}{{else}}z{{end}}", "{{if .spec.empty}}a{{else if .spec.ready}}b{{else}}c{{end}}", "{{with $x := .metadata.name}}{{$x}}{{.}}{{end}}",
		`{{if and .spec.ready (eq .metadata.labels.pool "mixed")}}yes{{end}}`, `{{or .spec.empty .metadata.name}}`, `{{and .spec.empty .nothing}}`, `{{.metadata.name | or .spec.empty}}`, `{{or}}`, `{{not .spec.empty}} {{not 1 2}}`,
		`{{index .metadata.labels "pool"}}`, `{{index .status.addresses 1 "address"}}`, `{{if index .metadata.labels "no"}}a{{else}}b{{end}}`, `{{index .status.addresses 7}}`, `{{index .status.addresses -1}}`, `{{index .metadata.labels 1}}`, `{{(index .status.addresses 0).address}}`,
		`{{len .metadata.name}} {{len .status.addresses}} {{len .metadata.labels}}`, "{{len .spec.cores}}", `{{printf "%s-%03d %.1f %v" .metadata.name .spec.cores .spec.weight .spec.ready}}`, `{{print 1 2 "x"}}`, `{{println "a"}}`, `{{.metadata.name | printf "%q"}}`, "{{printf 1}}", "{{printf}}",
		`{{eq .spec.cores 16}} {{ne .spec.cores 16}} {{lt 1 2}} {{le 2 2}} {{gt "b" "a"}} {{ge 1.5 2.5}}`, `{{eq .metadata.name 1}}`, "{{eq 1}}", "{{lt 1 1.5}}", `{{eq .metadata.gone .metadata.gone}}`, `{{ne true false}} {{eq true false}}`, "{{eq 1 2 3 1}}",
		`{{define "x"}}[{{.}}]{{end}}{{template "x" .metadata.name}}`, `{{template "y"}}`, `{{block "z" .metadata}}{{.name}}{{end}}`, `{{define "r"}}{{template "r"}}{{end}}{{template "r"}}`, `{{$x := 1}}{{define "w"}}{{$x}}{{end}}`,
		"{{.nothing}}", "{{.metadata.name.first}}", "{{.metadata.nothing.name}}", "{{.metadata.gone.x}}", "{{.metadata.name 1}}", `{{1 | .metadata.name}}`, "{{", "{{end}}", "{{nothing}}", "{{nil}}", "{{$u}}", "{{true}}", "{{if}}{{end}}", "{{.metadata.name | len}}",
		"{{18446744073709551615}}", "{{1 | print 2}}", "{{print (print 1) (print 2)}}", "{{print}}", "{{range 2}}{{range 2}}{{.}}{{end}}{{end}}", "{{range -1}}x{{else}}y{{end}}",
	} {
		add(text)
	}
}

// check compares a template's output with that of the engine of text/template. Stricter is allowed: printing null, and functions that are
// not offered.
func check(t *testing.T, text string) {
	t.Helper()

	got, err := render(text)
	var want limitedBuffer
	parsed, wantErr := template.New("spec").Option("missingkey=error").Parse(text)
	if wantErr == nil {
		wantErr = parsed.Execute(&want, testData())
	}

	if err != nil {
		if wantErr == nil && !strings.Contains(want.buf.String(), "<no value>") {
			t.Errorf("%s: %v, want %s", text, err, want.buf.String())
		}

		return
	}

	if wantErr != nil || got != want.buf.String() {
		t.Errorf("%s: %q, want %q (%v)", text, got, want.buf.String(), wantErr)
	}
}

func TestSameOutputAsTextTemplate(t *testing.T) {
	addTemplates(func(text string) { check(t, text) })
}

// FuzzTemplate executes any template within its bounds.
func FuzzTemplate(f *testing.F) {
	addTemplates(func(text string) { f.Add(text) })
	f.Fuzz(func(t *testing.T, text string) {
		if out, _ := render(text); len(out) > maxSpecBytes {
			t.Errorf("%d bytes", len(out))
		}
	})
}

func TestBounds(t *testing.T) {
	for text, why := range map[string]string{
		"{{range 100000}}{{range 100000}}{{end}}{{end}}":        "steps",
		`{{define "r"}}{{template "r"}}{{end}}{{template "r"}}`: "nested",
		`{{range 100000}}0123456789{{end}}`:                     "output of more",
		`{{index .metadata.labels "no"}}`:                       "null or missing",
		`{{.metadata.gone}}`:                                    "null or missing",
		`{{call .metadata.name}}`:                               "not defined",
		`{{range 1000000000}}{{$x := 1}}{{end}}`:                "steps",
	} {
		if out, err := render(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %.20s, %v, want %s", text, out, err, why)
		}
	}
}
