// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
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

// renderer writes a report in one format. What it leaves out it says on the error stream.
type renderer func(s Streams, r *report) error

// outputNames lists the formats in the order of the help.
func outputNames() []string {
	return append([]string{outputTable, outputJSON, outputYAML, outputCSV, outputMarkdown, outputHTML}, patchNames()...)
}

// rendererOf returns nil for a format that there is not.
func rendererOf(output string) renderer {
	plain := func(render func(io.Writer, *report) error) renderer {
		return func(s Streams, r *report) error { return render(s.Out, r) }
	}
	return map[string]renderer{
		outputTable: plain(renderTable), outputJSON: plain(renderJSON), outputYAML: plain(renderYAML),
		outputCSV: plain(renderCSV), outputMarkdown: plain(renderMarkdown), outputHTML: plain(renderHTML),
		outputKustomize: renderKustomize, outputStrategicMerge: renderStrategicMerge, outputJSONPatch: renderJSONPatch,
		outputHelmValues: renderHelmValues,
	}[output]
}

// checkTableOrJSON refuses what is neither, for the commands that know these two alone.
func checkTableOrJSON(output string) error {
	if output != outputTable && output != outputJSON {
		return fmt.Errorf("--output %q: want %s or %s", output, outputTable, outputJSON)
	}
	return nil
}

// encodeJSON writes a value for people and programs alike, indented.
func encodeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// renderYAML writes what renderJSON writes, with its field names. It encodes one workload at a time: the encoder keeps a
// tree of all that it is given.
func renderYAML(w io.Writer, r *report) error {
	const last = "workloads: []\n" // Fields are in the order of the alphabet.
	out := r.json()
	workloads := out.Workloads
	out.Workloads = []jsonWorkload{}
	head, err := yaml.Marshal(out)
	if err != nil {
		return fmt.Errorf("encoding YAML: %w", err)
	}
	text, ok := strings.CutSuffix(string(head), last)
	if !ok {
		return errors.New("encoding YAML: the workloads are not the last field")
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
		if err := writeYAML(w, "", workloads[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}
