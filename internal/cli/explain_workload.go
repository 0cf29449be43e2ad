// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/workloadname"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/internal/recommendation/sizesources"
)

const explainWorkloadLong = `Explain workload prints everything that decides the size of a workload: its pod template, the Recommendations, vertical and horizontal
autoscalers that select it, the number of each, which of them act, and why the others do not. Requests are those of one pod.

It reads the Kubernetes API only. crane recommend --explain prints how a request was computed from the history.

NAME is the name of a workload, as in frontend, deployment/frontend, shop/frontend or shop/deployment/frontend.

Exit codes: 0 success; 1 the API server cannot be read; 2 the flags are invalid; 3 the workload does not exist.`

// explainWorkloadOptions are the flags of `crane explain workload`.
type explainWorkloadOptions struct {
	kubernetes clusteraccess.Access
	namespace  string
	output     string
}

func newExplainWorkloadCommand(s Streams) *cobra.Command {
	o := &explainWorkloadOptions{}
	cmd := &cobra.Command{
		Use:     "workload NAME",
		Short:   "Explain what decides the size of a workload",
		Long:    explainWorkloadLong,
		Example: "  crane explain workload shop/frontend\n  crane explain workload deployment/frontend -n shop -o json",
		Args:    func(cmd *cobra.Command, args []string) error { return usageError(cobra.ExactArgs(1)(cmd, args)) },
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), s, args[0]) },
	}

	fs := cmd.Flags()
	addKubernetesFlags(fs, &o.kubernetes)
	fs.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the workload, unless it is part of NAME (default: all namespaces)")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")

	return cmd
}

func (o *explainWorkloadOptions) run(ctx context.Context, s Streams, name string) error {
	if err := checkTableOrJSON(o.output); err != nil {
		return usageError(err)
	}

	c, err := o.kubernetes.ObjectClient()
	if err != nil {
		return err
	}

	progress := progressline.New(s.Err, "listing workloads", nil)
	defer progress.Stop()

	target, err := workloadname.Find(ctx, c, o.namespace, name)
	if err != nil {
		return err
	}

	// Recommendations and autoscalers are read once the workload is known, of its namespace alone.
	progress.SetPhase("reading recommendations and autoscalers")
	found, err := sizesources.Read(ctx, c, target)
	progress.Stop()

	if err != nil {
		return err
	}

	return writeReport(s.Out, o.output, "explanation", found, renderSizeSources)
}

func renderSizeSources(w io.Writer, found sizesources.Sources) error {
	const whyWidth = 70
	t := texttable.New()
	t.SetColumnConfigs([]table.ColumnConfig{{Name: "WHY", WidthMax: whyWidth, WidthMaxEnforcer: text.WrapSoft}})
	t.AppendHeader(table.Row{"SOURCE", "CPU", "MEMORY", "REPLICAS", "ACTS", "WHY"})

	for _, s := range found.Sources {
		acts := "no"
		if s.Acts {
			acts = "yes"
		}

		t.AppendRow(table.Row{s.Source, cmp.Or(s.CPU, emptyCell), cmp.Or(s.Memory, emptyCell), cmp.Or(s.Replicas, emptyCell), acts, s.Why})
	}

	_, err := termtext.Fprintf(w, "%s\n\n%s\n", found.Workload, termtext.Trusted(t.Render()))
	return err
}
