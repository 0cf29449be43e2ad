// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/recommendation/requestpatch"
	"crane.io/crane/internal/recommendation/sizereport"
)

// The output formats of `crane recommend`.
const (
	outputTable    = "table"
	outputJSON     = "json"
	outputYAML     = "yaml"
	outputCSV      = "csv"
	outputMarkdown = "markdown"
	outputHTML     = "html"
)

// renderer writes a report in one format. It reports skipped workloads on the error stream.
type renderer func(s Streams, r *report) error

// outputFormats returns the formats in the order of the help text.
func outputFormats() []string {
	return append([]string{outputTable, outputJSON, outputYAML, outputCSV, outputMarkdown, outputHTML}, requestpatch.Formats()...)
}

// rendererFor returns the renderer of a format, or nil if the format is unknown.
func rendererFor(output string) renderer {
	plain := func(render func(io.Writer, *report) error) renderer {
		return func(s Streams, r *report) error { return render(s.Out, r) }
	}

	manifest := func(render func(out, notes io.Writer, r *sizereport.Report) error) renderer {
		return func(s Streams, r *report) error { return render(s.Out, s.Err, r.Report) }
	}

	return map[string]renderer{
		outputTable: plain(renderTable), outputJSON: plain(renderJSON), outputYAML: plain(renderYAML),
		outputCSV: plain(renderCSV), outputMarkdown: plain(renderMarkdown), outputHTML: plain(renderHTML),
		requestpatch.Kustomize: manifest(requestpatch.WriteKustomize), requestpatch.StrategicMerge: manifest(requestpatch.WriteStrategicMerge), requestpatch.JSONPatch: manifest(requestpatch.WriteJSONPatch),
		requestpatch.HelmValues: manifest(requestpatch.WriteHelmValues),
	}[output]
}

// checkTableOrJSON rejects all formats but table and JSON.
func checkTableOrJSON(output string) error {
	if output != outputTable && output != outputJSON {
		return fmt.Errorf("--output %q: want %s or %s", output, outputTable, outputJSON)
	}

	return nil
}

// writeReport writes a report with render, or as JSON.
func writeReport[T any](w io.Writer, output, name string, report T, render func(io.Writer, T) error) error {
	if output == outputJSON {
		render = func(w io.Writer, report T) error { return documents.WriteJSON(w, report) }
	}

	if err := render(w, report); err != nil {
		return fmt.Errorf("writing the %s: %w", name, err)
	}

	return nil
}

// renderYAML writes the report with the field names of renderJSON. It encodes one workload at a time to bound the
// memory of the encoder.
func renderYAML(w io.Writer, r *report) error {
	const last = "workloads: []\n" // Fields are sorted by name.
	out := r.json()
	workloads := out.Workloads

	out.Workloads = []jsonWorkload{}
	head, err := documents.YAML(out)
	if err != nil {
		return fmt.Errorf("encoding YAML: %w", err)
	}

	text, ok := strings.CutSuffix(string(head), last)
	if !ok {
		return errors.New("encoding YAML: workloads is not the last field")
	}

	if len(workloads) == 0 {
		text += last
	} else {
		text += "workloads:\n"
	}

	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}

	for i := range workloads {
		if err := documents.WriteYAML(w, "", workloads[i:i+1]); err != nil {
			return err
		}
	}

	return nil
}
