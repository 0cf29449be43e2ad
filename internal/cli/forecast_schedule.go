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
	"github.com/spf13/cobra"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/rightsize/requestbacktest"
	"crane.io/crane/pkg/rightsize/schedule"
)

const forecastScheduleLong = `Schedule converts the forecast of the next 24 hours into CPU requests by time of day, for containers that can be resized in
place: the policy crane-time-of-day of crane backtest rightsize. It prints the steps and the rule that raises the request if the
usage exceeds it. The command changes nothing.

The series are CSV files with the header ts,value, the result of --query in Prometheus, or the CPU usage of --workload divided
equally among --pods.

  above   expected share of the step with usage above the request
  reason  the reason for the request and for its start time

Exit codes: 0 success; 1 a file or Prometheus cannot be read; 2 the flags are invalid; 3 there is no series to forecast.`

// forecastScheduleOptions are the flags of `crane forecast schedule`.
type forecastScheduleOptions struct {
	forecastOptions

	workload string
	pods     int
	request  float64
	settings schedule.Settings
}

// seriesSchedule is a series, its forecast and the schedule.
type seriesSchedule struct {
	name     string
	forecast forecast.Forecast
	plan     schedule.Plan
}

func newForecastScheduleCommand(s Streams) *cobra.Command {
	o := &forecastScheduleOptions{settings: schedule.DefaultSettings()}
	o.prometheus = newPrometheusFlags()
	o.clock = time.Now
	o.algorithm = registry.Auto
	o.horizon = schedule.Horizon.String()

	cmd := &cobra.Command{
		Use:   "schedule [flags] FILE|DIR... | --query EXPR | --workload KIND/NAMESPACE/NAME",
		Short: "Print CPU requests by time of day and the reaction rule",
		Long:  forecastScheduleLong,
		Example: `  crane forecast schedule --request 4 web.csv
  crane forecast schedule --prometheus http://localhost:9090 --workload Deployment/shop/cart --pods 3`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.paths = args
			return o.run(cmd.Context(), s)
		},
	}

	fs := cmd.Flags()
	o.prometheus.addFlags(fs)
	fs.StringVar(&o.query, "query", "", "PromQL query of the usage of one container, instead of files; requires --prometheus")
	fs.StringVar(&o.workload, "workload", "", "workload as KIND/NAMESPACE/NAME whose CPU usage in cores is read; requires --prometheus")
	fs.IntVar(&o.pods, "pods", 1, "number of pods that share the usage of --workload")
	fs.Float64Var(&o.request, "request", 0, "current request in the unit of the series; 0 for none")
	o.calendar.addFlags(fs)
	fs.StringVar(&o.step, "step", "1m", "step of the samples")
	fs.StringVar(&o.history, "history", "14d", "length of the history")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")

	return cmd
}

// complete parses and validates the flags. It returns the algorithm and the kind, namespace and name of the workload.
func (o *forecastScheduleOptions) complete() (forecast.Algorithm, []string, error) {
	var errs []error
	errs = append(errs, checkTableOrJSON(o.output))
	if o.pods < 1 || o.pods > 100_000 {
		errs = append(errs, fmt.Errorf("--pods %d: must be 1 to 100000", o.pods))
	}
	if !forecast.Usable(o.request) {
		errs = append(errs, fmt.Errorf("--request %v: must be 0 or more", o.request))
	}

	var target []string
	common := o.forecastOptions
	if common.output == outputJSON {
		common.output = outputTable
	}

	if o.workload != "" {
		target = strings.Split(o.workload, "/")
		if len(target) != 3 || target[0] == "" || target[1] == "" || target[2] == "" {
			errs = append(errs, fmt.Errorf("--workload %q: want KIND/NAMESPACE/NAME, for example Deployment/shop/cart", o.workload))
		}
		if o.query != "" || len(o.paths) > 0 {
			errs = append(errs, errors.New("--workload, --query and files are mutually exclusive"))
		}

		// validate the other flags as for a query
		common.query = o.workload
		common.paths = nil
	} else if o.pods != 1 {
		errs = append(errs, errors.New("--pods requires --workload"))
	}

	algorithm, err := common.complete()
	errs = append(errs, err)
	o.historyLength = common.historyLength
	o.horizonLength = common.horizonLength
	o.stepLength = common.stepLength

	return algorithm, target, usageError(errors.Join(errs...))
}

func (o *forecastScheduleOptions) run(ctx context.Context, s Streams) error {
	algorithm, target, err := o.complete()
	if err != nil {
		return err
	}

	progress := newProgress(s.Err, "reading the history", nil)
	defer progress.stop()

	all, err := o.readUsage(ctx, s, target)
	if err != nil {
		return err
	}

	var out []seriesSchedule
	for i, named := range all {
		progress.setPhase(fmt.Sprintf("forecasting %d of %d series", i+1, len(all)))
		history := named.Series.Between(named.Series.End().Add(-o.historyLength), named.Series.End())
		f, err := algorithm.Forecast(history, schedule.Horizon)
		if err != nil {
			fmt.Fprintf(progress, "skipping %s: %v\n", named.Name, err)
			continue
		}

		plan, err := schedule.New(f, o.request, o.settings)
		if err != nil {
			fmt.Fprintf(progress, "skipping %s: %v\n", named.Name, err)
			continue
		}

		out = append(out, seriesSchedule{name: named.Name, forecast: f, plan: plan})
	}

	if len(out) == 0 {
		return &exitError{code: exitNoResult, err: errors.New("nothing to schedule: no series has a usable sample")}
	}

	progress.stop()
	if o.output == outputJSON {
		err = renderSchedulesJSON(s.Out, out, o.settings)
	} else {
		err = renderSchedules(s.Out, out, o.settings)
	}

	if err != nil {
		return fmt.Errorf("failed to write the schedule: %w", err)
	}

	return nil
}

// readUsage returns the series of the files or of the query, or the usage of one pod of the workload.
func (o *forecastScheduleOptions) readUsage(ctx context.Context, s Streams, target []string) ([]requestbacktest.Named, error) {
	if target == nil {
		return o.read(ctx, s)
	}

	source, err := o.prometheus.open()
	if err != nil {
		return nil, err
	}

	end := o.clock().UTC().Truncate(o.stepLength)
	found, err := source.Capabilities().Aggregates.WorkloadUsage(ctx, metrics.WorkloadsRequest{
		Resource:  metrics.CPU,
		Kind:      target[0],
		Namespace: target[1],
		Names:     target[2:],
		Window:    metrics.Window{Start: end.Add(-o.historyLength), End: end, Step: o.stepLength},
	})

	if err != nil {
		return nil, err
	}

	use, ok := found[target[2]]
	if !ok {
		return nil, nil
	}

	for i := range use.Values {
		use.Values[i] /= float64(o.pods)
	}

	name := o.workload
	if o.pods > 1 {
		name += fmt.Sprintf(", one of %d pods", o.pods)
	}

	return []requestbacktest.Named{{Name: name, Series: use}}, nil
}

// reactionRule describes when a request is raised above the plan.
func reactionRule(s schedule.Settings) string {
	return fmt.Sprintf("reaction: if two samples within ten minutes exceed the request, or one exceeds it by a quarter, it is raised to %.0f %% above the "+
		"highest usage since then, at the earliest %.0f minutes after the first sample, at most %d times a day and for at least %.0f minutes",
		100*s.Raise, s.Delay.Minutes(), s.Reactions, schedule.Hold.Minutes())
}

func renderSchedules(w io.Writer, all []seriesSchedule, settings schedule.Settings) error {
	for i, item := range all {
		t := newFigureTable("FROM (UTC)", "TO", "REQUEST", "ABOVE", "REASON")
		for _, step := range item.plan.Steps {
			t.AppendRow(table.Row{
				step.From.UTC().Format("2006-01-02 15:04"), step.To.UTC().Format("15:04"), fmt.Sprintf("%.4g", step.Request),
				fmt.Sprintf("%.2f %%", 100*step.Risk), step.Reason,
			})
		}

		if i > 0 {
			fmt.Fprintln(w)
		}

		_, err := fmt.Fprintf(w, "%s\nplan: %d changes, slack %.2f, %.2f %% of the time above; %s\n%s\n%s\n", item.name, item.plan.Changes,
			item.plan.Slack, 100*item.plan.Risk, item.plan.Reason, t.Render(), reactionRule(settings))
		if err != nil {
			return err
		}
	}

	return nil
}

// jsonSchedule is a schedule in JSON.
type jsonSchedule struct {
	Name     string             `json:"name"`
	Model    string             `json:"model"`
	Changes  int                `json:"changes"`
	Slack    float64            `json:"slack"`
	Above    float64            `json:"above"`
	Reason   string             `json:"reason"`
	Steps    []jsonScheduleStep `json:"steps"`
	Reaction jsonReaction       `json:"reaction"`
}

type jsonScheduleStep struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Request float64   `json:"request"`
	Above   float64   `json:"above"`
	Reason  string    `json:"reason"`
}

type jsonReaction struct {
	DelaySeconds float64 `json:"delaySeconds"`
	MostADay     int     `json:"mostADay"`
	Raise        float64 `json:"raise"`
	HoldSeconds  float64 `json:"holdSeconds"`
	Rule         string  `json:"rule"`
}

func renderSchedulesJSON(w io.Writer, all []seriesSchedule, settings schedule.Settings) error {
	out := struct {
		Series []jsonSchedule `json:"series"`
	}{}
	for _, item := range all {
		j := jsonSchedule{
			Name:    item.name,
			Model:   item.forecast.Model,
			Changes: item.plan.Changes,
			Slack:   item.plan.Slack,
			Above:   item.plan.Risk,
			Reason:  item.plan.Reason,
			Reaction: jsonReaction{
				DelaySeconds: settings.Delay.Seconds(),
				MostADay:     settings.Reactions,
				Raise:        float64(settings.Raise),
				HoldSeconds:  schedule.Hold.Seconds(),
				Rule:         reactionRule(settings),
			},
		}

		for _, step := range item.plan.Steps {
			j.Steps = append(j.Steps, jsonScheduleStep{
				From:    step.From.UTC(),
				To:      step.To.UTC(),
				Request: step.Request,
				Above:   step.Risk,
				Reason:  step.Reason,
			})
		}

		out.Series = append(out.Series, j)
	}

	return encodeJSON(w, out)
}
