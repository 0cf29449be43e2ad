// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"crane.io/crane/internal/kube/installation"
	"crane.io/crane/internal/metrics/progressline"
)

const statusLong = `Status prints whether each component of Crane runs in Crane's namespace, its version, and whether its objects are processed: the leader of craned,
the server of the external metrics API, the switch of crane pause, rules, recommendations, forecasts and autoscalers. It changes
nothing. With the name of a workload it prints what crane explain workload prints.

The status of a line is ok, warn (with the reason) or off (not installed).

Exit codes: 0 no line is warn; 1 a line is warn, or the API server cannot be read; 2 the flags are invalid; 3 the workload does not exist.`

// newStatusCommand returns `crane status`.
func newStatusCommand(s Streams) *cobra.Command {
	o := &explainWorkloadOptions{}
	var cranedNamespace string
	cmd := &cobra.Command{
		Use:     "status [WORKLOAD]",
		Short:   "Print whether each component of Crane runs and its objects are processed",
		Long:    statusLong,
		Example: "  crane status\n  crane status shop/frontend\n  crane status -o json",
		Args:    func(cmd *cobra.Command, args []string) error { return usageError(cobra.MaximumNArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return o.run(cmd.Context(), s, args[0])
			}

			return runStatus(cmd.Context(), s, o, cranedNamespace)
		},
	}

	fs := cmd.Flags()
	addKubernetesFlags(fs, &o.kubernetes)
	addCranedNamespaceFlag(fs, &cranedNamespace)
	fs.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the workload, unless it is part of its name")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")

	return cmd
}

func runStatus(ctx context.Context, s Streams, o *explainWorkloadOptions, cranedNamespace string) error {
	if err := checkTableOrJSON(o.output); err != nil {
		return usageError(err)
	}

	if o.namespace != "" {
		return usageError(errors.New("--namespace requires the name of a workload"))
	}

	c, err := o.kubernetes.ObjectClient()
	if err != nil {
		return err
	}

	progress := progressline.New(s.Err, "reading the state of Crane", nil)
	checks, err := installation.Read(ctx, c, cranedNamespace, time.Now())
	progress.Stop()

	if err != nil {
		return err
	}

	render := renderDoctorTable
	if o.output == outputJSON {
		render = renderDoctorJSON
	}

	if err := render(s.Out, checks); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}

	// The error of the exit code names the lines to look at.
	var warned []string
	for _, c := range checks {
		if c.Status == installation.Warn {
			warned = append(warned, c.Name)
		}
	}

	if len(warned) > 0 {
		return fmt.Errorf("warnings: %s", strings.Join(warned, ", "))
	}

	return nil
}
