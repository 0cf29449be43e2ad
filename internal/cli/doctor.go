// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/installation"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/pkg/rightsize"
)

const doctorLong = `Doctor checks the prerequisites of crane recommend and prints how to fix missing ones: the kubeconfig and the API server, the
permissions to list workloads, Prometheus and its metrics, the length of its history, and optional components. The command
changes nothing.

The status of a check is ok, warn (crane works with the restriction in the line) or missing (crane recommend would fail or
return no recommendation).

Exit codes: 0 nothing is missing; 1 something is missing; 2 the flags are invalid.`

const doctorExample = `  crane doctor
  crane doctor --prometheus http://localhost:9090 -o json`

// doctorOptions are the flags of `crane doctor`.
type doctorOptions struct {
	prometheus *historyserver.Server
	kubernetes *clusteraccess.Access
	// cranedNamespace is the namespace of craned.
	cranedNamespace string
	namespaces      []string
	policyName      string
	output          string

	// policy is derived from the flags.
	policy rightsize.Policy
}

func newDoctorCommand(s Streams) *cobra.Command {
	o := &doctorOptions{prometheus: historyserver.NewServer(), kubernetes: &clusteraccess.Access{}}
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Check the prerequisites and print how to fix missing ones",
		Long:    doctorLong,
		Example: doctorExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.prometheus.Complete()
			if err := o.complete(); err != nil {
				return usageError(err)
			}

			return o.run(cmd.Context(), s)
		},
	}

	fs := cmd.Flags()
	addPrometheusFlags(fs, o.prometheus)
	addKubernetesFlags(fs, o.kubernetes)
	addCranedNamespaceFlag(fs, &o.cranedNamespace)
	fs.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "namespaces in which permissions are checked (default: all); may be repeated")
	fs.StringVar(&o.policyName, "policy", rightsize.DefaultPolicy, "policy whose history requirement is checked: "+strings.Join(rightsize.PolicyNames(), ", ")+", or a file")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")

	return cmd
}

func (o *doctorOptions) complete() error {
	var errs []error
	policies, err := loadPolicies(o.policyName)
	if err != nil {
		errs = append(errs, fmt.Errorf("--policy: %w", err))
	}

	o.policy = policies.Default
	errs = append(errs, checkTableOrJSON(o.output))
	if o.prometheus.Service != "" && o.prometheus.Address != "" {
		errs = append(errs, errors.New("--prometheus and --prometheus-service are mutually exclusive"))
	}

	return errors.Join(errs...)
}

func (o *doctorOptions) run(ctx context.Context, s Streams) error {
	d := &diagnosis{options: o, now: time.Now()}
	progress := progressline.New(s.Err, "checking the cluster and Prometheus", nil)
	d.run(ctx)
	progress.Stop()

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	render := renderDoctorTable
	if o.output == outputJSON {
		render = renderDoctorJSON
	}

	if err := render(s.Out, d.checks); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}

	if missing := d.missing(); len(missing) > 0 {
		return fmt.Errorf("missing: %s", strings.Join(missing, ", "))
	}

	return nil
}

// diagnosis collects the results of the checks.
type diagnosis struct {
	options *doctorOptions
	now     time.Time
	checks  []installation.Check
}

func (d *diagnosis) add(name string, s installation.Status, detail, advice string) {
	d.checks = append(d.checks, installation.Check{
		Name:   name,
		Status: s,
		Detail: detail,
		Advice: advice,
	})
}

func (d *diagnosis) missing() (names []string) {
	for _, c := range d.checks {
		if c.Status == installation.Missing {
			names = append(names, c.Name)
		}
	}

	return names
}

// run runs the checks, the prerequisites of other checks first.
func (d *diagnosis) run(ctx context.Context) {
	cluster := d.checkCluster(ctx)
	if cluster != nil {
		d.checkPermissions(ctx, cluster)
	}

	d.checkServer(ctx, cluster != nil)
	if cluster != nil {
		d.checkComponents(ctx, cluster)
	}
}

func renderDoctorTable(w io.Writer, checks []installation.Check) error {
	if _, err := io.WriteString(w, formatChecks(checks, progressline.TerminalWidth(w))); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}

	return nil
}

// formatChecks returns the results as a table for a terminal of that width in columns (0: unknown), or as a list if
// the terminal is too narrow for two text columns.
func formatChecks(checks []installation.Check, columns int) string {
	t := texttable.New("CHECK", "STATUS", "DETAIL", "ADVICE")
	name := len("CHECK")
	state := len("STATUS")
	for _, c := range checks {
		name = max(name, len(c.Name))
		state = max(state, len(c.Status))
		t.AppendRow(table.Row{c.Name, c.Status, c.Detail, c.Advice})
	}

	width := maxNoteWidth
	if columns > 0 {
		const minTextWidth = 30
		// The two text columns share the remaining width.
		if width = (columns - name - state - 8) / 2; width < minTextWidth {
			return formatCheckList(checks, state, columns)
		}
	}

	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 3, WidthMax: width, WidthMaxEnforcer: text.WrapSoft}, {Number: 4, WidthMax: width, WidthMaxEnforcer: text.WrapSoft},
	})

	return t.Render() + "\n"
}

func formatCheckList(checks []installation.Check, state, columns int) string {
	var b strings.Builder
	for _, c := range checks {
		b.WriteString(wrapText(fmt.Sprintf("%-*s  ", state, c.Status), c.Name+": "+c.Detail, columns))
		if c.Advice != "" {
			b.WriteString(wrapText(strings.Repeat(" ", state)+"  > ", c.Advice, columns))
		}
	}

	return b.String()
}

func renderDoctorJSON(w io.Writer, checks []installation.Check) error {
	return documents.WriteJSON(w, map[string]any{"checks": checks})
}
