// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"crane.io/crane/pkg/scaling/replay"
	"crane.io/crane/pkg/series"
)

const simulateAutoscaleLong = `Simulate autoscale plays series of real load through a model of pods and shows what each way of scaling would have done.

  reactive  the HPA: sync 15 s, tolerance 0.1, stabilisation 300 s, metrics 30 s old
  ehpa      the same with a forecast beside it, at the quantile that the workload's own past shows to be worth its replicas
  cron      eight windows a day, sized once on the first days
  oracle    the HPA that knows the load to come as far ahead as a pod takes to start

Load is shared by the ready pods. A pod's capacity is such that the 95th percentile of the series needs --pods at --target; it is
ready --startup after it was asked for. The first --warmup of a series is only looked at; a forecast sees nothing but the past.

  under capacity  time with load above what the ready pods carry, in minutes
  replica hours   sum of replicas over time, those that start included
  scalings        how often the number of replicas changed

Series whose forecast follows a season, and the rest, are summed up apart; ratios are to reactive.

A series is a CSV file with the header ts,value; other files of a directory are skipped.

Exit codes: 0 done; 1 a file cannot be read; 2 the flags are wrong; 3 no series is long enough.`

// simulateAutoscaleOptions are the flags of `crane simulate autoscale`.
type simulateAutoscaleOptions struct {
	pods     []int
	startups []string
	target   float64
	warmup   string
	output   string
	paths    []string
}

func newSimulateAutoscaleCommand(s Streams) *cobra.Command {
	o := &simulateAutoscaleOptions{}
	cmd := &cobra.Command{
		Use:   "autoscale [flags] FILE|DIR...",
		Short: "Replay ways of scaling replicas over series of real load",
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
	fs.IntSliceVar(&o.pods, "pods", plan.Pods, "pods that the 95th percentile of a series needs; several are played one by one")
	fs.StringSliceVar(&o.startups, "startup", []string{"60s", "180s"}, "time from a new replica to a ready pod; several are played one by one")
	fs.Float64Var(&o.target, "target", plan.Target, "share of its capacity that a pod should carry, above 0 and at most 1")
	fs.StringVar(&o.warmup, "warmup", "7d", "how much of a series is only looked at")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")
	return cmd
}

// plan reads the flags.
func (o *simulateAutoscaleOptions) plan() (replay.Plan, error) {
	plan := replay.Plan{Pods: o.pods, Target: o.target}
	var errs []error
	for _, n := range o.pods {
		if n < 1 || n > 10_000 {
			errs = append(errs, fmt.Errorf("--pods %d: must be 1 to 10000", n))
		}
	}
	for _, text := range o.startups {
		d, err := series.ParseDuration(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--startup: %w", err))
		}
		plan.Startups = append(plan.Startups, d)
	}
	if !(o.target > 0 && o.target <= 1) {
		errs = append(errs, fmt.Errorf("--target %v: must be above 0 and at most 1", o.target))
	}
	var err error
	if plan.Warmup, err = series.ParseDuration(o.warmup); err != nil {
		errs = append(errs, fmt.Errorf("--warmup: %w", err))
	}
	errs = append(errs, checkTableOrJSON(o.output))
	if len(o.paths) == 0 {
		errs = append(errs, errors.New("which series? Give files or directories"))
	}
	if len(o.pods) == 0 || len(o.startups) == 0 {
		errs = append(errs, errors.New("--pods and --startup need a value each"))
	}
	return plan, usageError(errors.Join(errs...))
}

func (o *simulateAutoscaleOptions) run(s Streams) error {
	plan, err := o.plan()
	if err != nil {
		return err
	}
	all, err := readSeries(s.Err, o.paths)
	if err != nil {
		return err
	}
	var results []replay.Result
	for _, named := range all {
		played, err := replay.Compare(plan, named.Name, named.Series)
		if err != nil {
			// What could not be played is said, and the rest is still worth its report.
			fmt.Fprintln(s.Err, "skipping", err)
			continue
		}
		results = append(results, played...)
	}
	if len(results) == 0 {
		return &exitError{code: exitNothing, err: errors.New("nothing to play: no series is long enough")}
	}
	report := replay.NewReport(results)
	if o.output == outputJSON {
		err = encodeJSON(s.Out, report)
	} else {
		err = renderAutoscaleTable(s.Out, report)
	}
	if err != nil {
		return fmt.Errorf("writing the simulation: %w", err)
	}
	return nil
}

func renderAutoscaleTable(w io.Writer, report replay.Report) error {
	cases := newFigureTable("SERIES", "PODS", "STARTUP", "SCALER", "UNDER CAPACITY MIN", "REPLICA HOURS", "SCALINGS")
	for _, r := range report.Series {
		cases.AppendRow(table.Row{
			r.Name, r.Pods, fmt.Sprintf("%gs", r.StartupSeconds), r.Scaler, fmt.Sprintf("%.1f", r.UnderCapacityMinutes),
			fmt.Sprintf("%.1f", r.ReplicaHours), r.Scalings,
		})
	}
	totals := newFigureTable("SUM OF", "SERIES", "SCALER", "UNDER CAPACITY MIN", "RATIO", "REPLICA HOURS", "RATIO", "SCALINGS")
	for _, t := range report.Total {
		totals.AppendRow(table.Row{
			t.Kind, t.Series, t.Scaler, fmt.Sprintf("%.1f", t.UnderCapacityMinutes), ratioText(t.UnderCapacityRatio),
			fmt.Sprintf("%.1f", t.ReplicaHours), ratioText(t.ReplicaHoursRatio), t.Scalings,
		})
	}
	_, err := fmt.Fprintf(w, "%s\n\n%s\n", cases.Render(), totals.Render())
	return err
}

func ratioText(r *float64) string {
	if r == nil {
		return nothing
	}
	return fmt.Sprintf("%.3f", *r)
}
