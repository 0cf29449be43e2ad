// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/scaling/replay"
	"crane.io/crane/pkg/units"
)

const simulateAutoscaleLong = `Simulate autoscale runs measured load through a model of pods and compares scaling methods.

  reactive  the HPA: sync 15 s, tolerance 0.1, stabilization 300 s, metrics 30 s old
  ehpa      the HPA with a forecast, at the quantile whose benefit in the past of the workload justifies its replicas
  plain     the HPA with the plain plan: the median over the past days of the highest load of each quarter of an hour
  low-target  the HPA with a target of 93 % of --target, which costs about as much as a forecast may
  cron      eight time windows a day, sized once from the first days
  oracle    an HPA with exact knowledge of the load one pod startup ahead

The series are one fleet: ehpa spends --budget where it avoids most minutes under capacity.

Ready pods share the load. The capacity of a pod is chosen so that the 95th percentile of the series needs --pods at --target. A
pod is ready --startup after its creation. The first --warmup of a series is not scored; a forecast uses only earlier samples.

  under capacity  minutes with load above the capacity of the ready pods
  replica hours   sum of replicas over time, including those that are starting
  scalings        number of changes of the replica count

Ratios are relative to reactive. ACCOUNT is what the last days of the ehpa bought and cost in its own account: the share of the time
under capacity that it avoided, and its additional replica hours.

A series is a CSV file with the header ts,value; other files of a directory are skipped.

Exit codes: 0 success; 1 a file cannot be read; 2 the flags are invalid; 3 no series is long enough.`

// simulateAutoscaleOptions are the flags of `crane simulate autoscale`.
type simulateAutoscaleOptions struct {
	pods     []int
	startups []string
	target   float64
	warmup   string
	budget   float64
	output   string
	paths    []string
}

func newSimulateAutoscaleCommand(s Streams) *cobra.Command {
	o := &simulateAutoscaleOptions{}
	cmd := &cobra.Command{
		Use:   "autoscale [flags] FILE|DIR...",
		Short: "Compare autoscaling methods on measured load",
		Long:  simulateAutoscaleLong,
		Example: `  crane simulate autoscale ./traces
  crane simulate autoscale --pods 20 --startup 2m -o json ./traces/checkout.csv`,
		RunE: func(_ *cobra.Command, args []string) error {
			o.paths = args
			return o.run(s)
		},
	}

	plan := replay.DefaultPlan()
	fs := cmd.Flags()
	fs.IntSliceVar(&o.pods, "pods", plan.Pods, "number of pods required by the 95th percentile of a series; several values run one by one")
	fs.StringSliceVar(&o.startups, "startup", []string{"60s", "180s"}, "time from the creation of a replica to a ready pod; several values run one by one")
	fs.Float64Var(&o.target, "target", plan.Target, "target utilization of a pod's capacity, above 0 and at most 1")
	fs.StringVar(&o.warmup, "warmup", "7d", "length of the start of a series that is not scored")
	fs.Float64Var(&o.budget, "budget", plan.Budget, "additional replica hours that the forecasts of all series may cost, as a fraction, from 0 to 10")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")

	return cmd
}

// plan parses and validates the flags.
func (o *simulateAutoscaleOptions) plan() (replay.Plan, error) {
	plan := replay.Plan{Pods: o.pods, Target: o.target, Budget: o.budget}
	var errs []error
	for _, n := range o.pods {
		if n < 1 || n > 10_000 {
			errs = append(errs, fmt.Errorf("--pods %d: must be 1 to 10000", n))
		}
	}

	for _, text := range o.startups {
		d, err := units.ParseDuration(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--startup: %w", err))
		}

		plan.Startups = append(plan.Startups, d)
	}

	if !(o.target > 0 && o.target <= 1) {
		errs = append(errs, fmt.Errorf("--target %v: must be above 0 and at most 1", o.target))
	}
	if _, err := scaling.NewFleet(o.budget); err != nil {
		errs = append(errs, fmt.Errorf("--budget: %w", err))
	}

	var err error
	if plan.Warmup, err = units.ParseDuration(o.warmup); err != nil {
		errs = append(errs, fmt.Errorf("--warmup: %w", err))
	}

	errs = append(errs, checkTableOrJSON(o.output))
	if len(o.paths) == 0 {
		errs = append(errs, errors.New("missing argument: want files or directories with series"))
	}
	if len(o.pods) == 0 || len(o.startups) == 0 {
		errs = append(errs, errors.New("--pods and --startup require a value"))
	}

	return plan, usageError(errors.Join(errs...))
}

func (o *simulateAutoscaleOptions) run(s Streams) error {
	plan, err := o.plan()
	if err != nil {
		return err
	}

	progress := progressline.New(s.Err, "replaying the autoscalers", nil)
	defer progress.Stop()

	all, err := readSeries(s.Err, o.paths)
	if err != nil {
		return err
	}

	named := make([]replay.Named, len(all))
	for i, input := range all {
		named[i] = replay.Named{Name: input.Name, Series: input.Series}
	}

	results, skipped := replay.Compare(plan, named)
	progress.Stop()

	for _, err := range skipped {
		termtext.Fprintln(s.Err, "skipping", err)
	}

	if len(results) == 0 {
		return &exitError{code: exitNoResult, err: errors.New("nothing to simulate: no series is long enough")}
	}

	return writeReport(s.Out, o.output, "simulation", replay.NewReport(results), renderAutoscaleTable)
}

func renderAutoscaleTable(w io.Writer, report replay.Report) error {
	cases := newFigureTable("SERIES", "PODS", "STARTUP", "SCALER", "UNDER CAPACITY MIN", "REPLICA HOURS", "SCALINGS", "ACCOUNT")
	for _, r := range report.Series {
		cases.AppendRow(table.Row{
			r.Name, r.Pods, fmt.Sprintf("%gs", r.StartupSeconds), r.Scaler, fmt.Sprintf("%.1f", r.UnderCapacityMinutes),
			fmt.Sprintf("%.1f", r.ReplicaHours), r.Scalings, accountText(r),
		})
	}

	totals := newFigureTable("SERIES", "SCALER", "UNDER CAPACITY MIN", "RATIO", "REPLICA HOURS", "RATIO", "SCALINGS")
	for _, t := range report.Total {
		totals.AppendRow(table.Row{
			t.Series, t.Scaler, fmt.Sprintf("%.1f", t.UnderCapacityMinutes), ratioText(t.UnderCapacityRatio),
			fmt.Sprintf("%.1f", t.ReplicaHours), ratioText(t.ReplicaHoursRatio), t.Scalings,
		})
	}

	_, err := termtext.Fprintf(w, "%s\n\n%s\n", termtext.Trusted(cases.Render()), termtext.Trusted(totals.Render()))
	return err
}

// accountText returns what a forecast bought and cost.
func accountText(r replay.Row) string {
	if r.SparedTime == nil || r.ExtraReplicas == nil {
		return emptyCell
	}

	return fmt.Sprintf("-%.0f %% for +%.1f %%", 100**r.SparedTime, 100**r.ExtraReplicas)
}

func ratioText(r *float64) string {
	if r == nil {
		return emptyCell
	}

	return fmt.Sprintf("%.3f", *r)
}
