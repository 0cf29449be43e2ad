// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"crane.io/crane/pkg/rightsize"
)

const doctorLong = `Doctor says what crane recommend has, what it lacks, and how to get that: the kubeconfig and the API server, the rights
to list workloads, Prometheus and its metrics, how far its history reaches, and what is of use beside these. It looks and
changes nothing.

Each line is ok, warn (crane works, and loses what the line says) or missing (crane recommend would fail, or give no number).

Exit codes: 0 nothing is missing; 1 something is; 2 the flags are wrong.`

const doctorExample = `  crane doctor
  crane doctor --prometheus http://localhost:9090 -o json`

// status of a check.
type status string

const (
	statusOK      status = "ok"
	statusWarn    status = "warn"
	statusMissing status = "missing"
)

// check is one line of the doctor's report.
type check struct {
	Name   string `json:"check"`
	Status status `json:"status"`
	// Detail is what was found, in a few words.
	Detail string `json:"detail"`
	// Advice is what to do; empty where nothing is to be done.
	Advice string `json:"advice,omitempty"`
}

// doctorOptions are the flags of `crane doctor`.
type doctorOptions struct {
	prometheus *prometheusFlags
	kubernetes *kubernetesFlags
	namespaces []string
	policyName string
	output     string

	// policy follows from the flags.
	policy rightsize.Policy
}

func newDoctorCommand(s Streams) *cobra.Command {
	o := &doctorOptions{prometheus: newPrometheusFlags(), kubernetes: &kubernetesFlags{}}
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Say what is missing to run, and how to get it",
		Long:    doctorLong,
		Example: doctorExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.prometheus.complete()
			if err := o.complete(); err != nil {
				return usageError(err)
			}
			return o.run(cmd.Context(), s)
		},
	}
	fs := cmd.Flags()
	o.prometheus.addFlags(fs)
	o.kubernetes.addFlags(fs)
	fs.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "namespaces in which the rights are looked at (default: all); may be repeated")
	fs.StringVar(&o.policyName, "policy", rightsize.DefaultPolicy, "policy whose need of history is checked: "+strings.Join(rightsize.PolicyNames(), ", ")+", or a file")
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
	if o.prometheus.service != "" && o.prometheus.address != "" {
		errs = append(errs, errors.New("--prometheus contradicts --prometheus-service"))
	}
	return errors.Join(errs...)
}

func (o *doctorOptions) run(ctx context.Context, s Streams) error {
	d := &diagnosis{options: o, now: time.Now()}
	d.look(ctx)
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

// diagnosis is what the doctor has found out so far.
type diagnosis struct {
	options *doctorOptions
	now     time.Time
	checks  []check
}

func (d *diagnosis) add(name string, s status, detail, advice string) {
	d.checks = append(d.checks, check{Name: name, Status: s, Detail: detail, Advice: advice})
}

func (d *diagnosis) missing() (names []string) {
	for _, c := range d.checks {
		if c.Status == statusMissing {
			names = append(names, c.Name)
		}
	}
	return names
}

// look goes from what everything else needs to what is merely of use.
func (d *diagnosis) look(ctx context.Context) {
	cluster := d.lookAtCluster(ctx)
	if cluster != nil {
		d.lookAtRights(ctx, cluster)
	}
	d.lookAtPrometheus(ctx, cluster != nil)
	if cluster != nil {
		d.lookAtExtras(ctx, cluster)
	}
}

func renderDoctorTable(w io.Writer, checks []check) error {
	if _, err := io.WriteString(w, drawDoctor(checks, terminalWidth(w))); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

// drawDoctor is for a terminal of so many columns; 0 where the width is not known. Where there is no room for two columns of
// text beside the names it is a list.
func drawDoctor(checks []check, columns int) string {
	t := newTable()
	t.AppendHeader(table.Row{"CHECK", "STATUS", "FOUND", "WHAT TO DO"})
	name, state := len("CHECK"), len("STATUS")
	for _, c := range checks {
		name, state = max(name, len(c.Name)), max(state, len(c.Status))
		t.AppendRow(table.Row{c.Name, c.Status, c.Detail, c.Advice})
	}
	width := maxNoteWidth
	if columns > 0 {
		const readable = 30
		// Two columns of text share what is left of the line.
		if width = (columns - name - state - 8) / 2; width < readable {
			return listDoctor(checks, state, columns)
		}
	}
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 3, WidthMax: width, WidthMaxEnforcer: text.WrapSoft}, {Number: 4, WidthMax: width, WidthMaxEnforcer: text.WrapSoft},
	})
	return t.Render() + "\n"
}

func listDoctor(checks []check, state, columns int) string {
	var b strings.Builder
	for _, c := range checks {
		b.WriteString(wrapped(fmt.Sprintf("%-*s  ", state, c.Status), c.Name+": "+c.Detail, columns))
		if c.Advice != "" {
			b.WriteString(wrapped(strings.Repeat(" ", state)+"  > ", c.Advice, columns))
		}
	}
	return b.String()
}

func renderDoctorJSON(w io.Writer, checks []check) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(map[string]any{"checks": checks}); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}
