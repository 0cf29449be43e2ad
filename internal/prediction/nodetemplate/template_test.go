// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetemplate

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

func TestExecute(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"{{- .metadata.name -}} x{{/* comment */}}":                                                                                 "n1x",
		"{{range $i, $a := .status.addresses}}{{if $i}}|{{end}}{{$a.address}}{{end}}":                                               "10.0.0.1|n1|1.2.3.4",
		"{{range $k, $v := .metadata.labels}}{{$k}}={{$v}},{{end}}":                                                                 "pool=mixed,zone=a,",
		"{{range .spec.none}}x{{else}}none{{end}}{{range .metadata.gone}}x{{else}}null{{end}}":                                      "nonenull",
		`{{range .status.addresses}}{{if eq .type "Hostname"}}{{break}}{{end}}{{.address}}{{end}}`:                                  "10.0.0.1",
		`{{range .status.addresses}}{{if eq .type "Hostname" "ExternalIP"}}{{continue}}{{end}}{{.address}}{{end}}`:                  "10.0.0.1",
		`{{$last := ""}}{{range .status.addresses}}{{$last = .address}}{{end}}{{$last}}`:                                            "1.2.3.4",
		"{{with .spec.empty}}x{{else with .metadata}}{{.name}}{{else}}z{{end}}":                                                     "n1",
		`{{if and .spec.ready (eq .metadata.labels.pool "mixed")}}yes{{end}}{{if index .metadata.labels "no"}}a{{else}}b{{end}}`:    "yesb",
		`{{index .status.addresses 1 "address"}} {{(index .status.addresses 0).address}} {{len .metadata.labels}}`:                  "n1 10.0.0.1 2",
		`{{printf "%s-%03d %.1f %v" .metadata.name .spec.cores .spec.weight .spec.ready}} {{print 1 "x"}} {{.metadata.name | len}}`: "n1-016 2.5 true 1x 2",
	} {
		got, err := execute(text, testData())
		if err != nil || string(got) != want {
			t.Errorf("execute(%s) = %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestExecute_Refused(t *testing.T) {
	for text, want := range map[string]string{
		`{{define "r"}}{{template "r"}}{{end}}{{template "r"}}`: "define and block are not supported",
		`{{block "z" .metadata}}{{.name}}{{end}}`:               "define and block are not supported",
		`{{template "y"}}`:                    "is not supported",
		"{{range 3}}x{{end}}":                 "neither a list nor a map",
		"{{range .spec.cores}}x{{end}}":       "neither a list nor a map",
		"{{range .metadata.name}}x{{end}}":    "neither a list nor a map",
		`{{call .metadata.name}}`:             "function call is not supported",
		`{{if (html .metadata.name)}}{{end}}`: "function html is not supported",
		`{{(slice .metadata.name 1).x}}`:      "function slice is not supported",
		`{{output .metadata.name}}`:           "function output is not supported",
		`{{index .metadata.labels "no"}}`:     "null or missing",
		`{{.metadata.gone}}`:                  "null or missing",
		"{{.metadata.nothing}}":               "no entry for key",
	} {
		got, err := execute(text, testData())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("execute(%s) = %.20q, %v, want an error with %q", text, got, err, want)
		}
	}
}

// newLargeData returns a Node of some 1.5 MB, the most that the API server stores.
func newLargeData() map[string]any {
	labels := map[string]any{}
	var addresses []any
	for i := range 5000 {
		labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("x", 63)
		addresses = append(addresses, map[string]any{"type": "InternalIP", "address": strings.Repeat("y", 100)})
	}

	return map[string]any{"metadata": map[string]any{"name": "n1", "labels": labels}, "status": map[string]any{"addresses": addresses}}
}

// largeTemplates are templates that take long for a large Node, with the bound that ends them.
var largeTemplates = map[string]string{
	`{{range .metadata.labels}}{{range $.status.addresses}}{{end}}{{end}}`:                                     "the ranges have more than",
	`{{range .status.addresses}}{{range $.metadata.labels}}{{break}}{{end}}{{end}}`:                            "the ranges have more than",
	`{{range .status.addresses}}{{range $.status.addresses}}{{range $.status.addresses}}{{end}}{{end}}{{end}}`: "the ranges have more than",
	`{{range .status.addresses}}{{.address}}{{end}}`:                                                           "output of more than",
	`{{$all := ""}}{{range .status.addresses}}{{$all = print $all .address}}{{end}}`:                           "are printed",
	`{{range .status.addresses}}{{$x := printf "%999999d" 1}}{{end}}`:                                          "are printed",
	`{{range $k, $v := .metadata.labels}}{{if eq $k "x" $v}}{{$k}}{{end}}{{end}}`:                              "",
}

func TestExecute_LargeNode(t *testing.T) {
	for text, want := range largeTemplates {
		_, err := execute(text, newLargeData())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("execute(%s) of a large Node = %v, want %q", text, err, want)
		}
	}
}

func BenchmarkRender_LargeNode(b *testing.B) {
	node := newHostileNode("x")
	for i := range 20_000 {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf(`a"%d`, i)})
	}

	for _, addresses := range []int{10, 1000, 9000, 20_000} {
		b.Run(strconv.Itoa(addresses), func(b *testing.B) {
			n := node.DeepCopy()
			n.Status.Addresses = n.Status.Addresses[:addresses]
			for b.Loop() {
				_, _ = Render(hostileYAML(hostileTemplates["group"])[0], n)
			}
		})
	}
}

func BenchmarkExecute_LargeNode(b *testing.B) {
	data := newLargeData()
	for text := range largeTemplates {
		b.Run(text, func(b *testing.B) {
			for b.Loop() {
				_, _ = execute(text, data)
			}
		})
	}
}

// FuzzExecute executes any template within its bounds.
func FuzzExecute(f *testing.F) {
	for text := range largeTemplates {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		if out, _ := execute(text, testData()); len(out) > maxSpecBytes {
			t.Errorf("execute(%q) has an output of %d bytes, want at most %d", text, len(out), maxSpecBytes)
		}
	})
}
