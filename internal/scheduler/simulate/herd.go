// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"crane.io/crane/internal/scheduler/simulate/engine"
)

// Sizes of the burst.
const (
	herdNodes = 100
	herdPods  = 100
)

// herd runs the burst with each policy and prints where its pods went.
func herd(ctx context.Context, o *Options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "crane-simulate-")
	if err != nil {
		return fmt.Errorf("making a folder for the policy file: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // A small file in the folder for such files.
	files, err := openPolicies(o.PolicyFile, dir)
	if err != nil {
		return err
	}
	chosen, err := selectPolicies(policies(files), o.Policies)
	if err != nil {
		return err
	}
	nodes := herdNodes
	if o.Nodes > 1 {
		nodes = o.Nodes
	}
	var found []engine.Herd
	for _, p := range chosen {
		h, err := engine.RunHerd(ctx, nodes, herdPods, p.name, p.build)
		if err != nil {
			return err
		}
		found = append(found, h)
	}
	return writeHerd(out, o.Output, found)
}

func writeHerd(out io.Writer, format string, found []engine.Herd) error {
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(found); err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
		return nil
	}
	t := table.NewWriter()
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"policy", "pods", "waiting", "on the idle node", "most on one node", "fullest node above the mean, pods"})
	for _, h := range found {
		t.AppendRow(table.Row{h.Policy, h.Pods, h.Waiting, h.OnIdle, h.Most, fmt.Sprintf("%.2f", h.Above/h.PodShare)})
	}
	shown := t.Render()
	if format == "markdown" {
		shown = t.RenderMarkdown()
	}
	fmt.Fprintln(out, shown)
	return nil
}
