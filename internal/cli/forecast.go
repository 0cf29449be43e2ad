// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/rightsize/requestbacktest"
	"crane.io/crane/pkg/series"
)

const forecastLong = `Forecast says what a series will do next and how sure that is: quantiles for each step of the horizon, with the
model that made them, its skill and the reason where it fell back to something simpler.

The series are CSV files with the header ts,value (their newest sample is "now"), or the answer of Prometheus to --query.

  skill    1 - loss / loss of a constant quantile, by the model's own back-test: 1 is perfect, 0 no better than a constant
  periods  whole seasons (days, where there is no season) of history that the model saw

Exit codes: 0 done; 1 a file or Prometheus cannot be read; 2 the flags are wrong; 3 there is no series to forecast.`

// The output formats of `crane forecast` beside table and JSON.
const (
	outputChart = "chart"
	outputSVG   = "svg"
)

// mostForecasts bounds how many series one query may bring.
const mostForecasts = 100

// forecastOptions are the flags of `crane forecast`.
type forecastOptions struct {
	prometheus                 *prometheusFlags
	calendar                   holidayFlags
	query, step                string
	algorithm                  string
	history, horizon           string
	output                     string
	width                      int
	paths                      []string
	clock                      func() time.Time
	past, ahead, queryStepSize time.Duration
}

// forecastOf is one series and what is forecast of it.
type forecastOf struct {
	name      string
	algorithm string
	history   series.Series
	forecast  forecast.Forecast
}

func newForecastCommand(s Streams) *cobra.Command {
	o := &forecastOptions{prometheus: newPrometheusFlags(), clock: time.Now}
	cmd := &cobra.Command{
		Use:   "forecast [flags] FILE|DIR... | --query EXPR",
		Short: "Say what a series will do next, and how sure that is",
		Long:  forecastLong,
		Example: `  crane forecast web.csv
  crane forecast --prometheus http://localhost:9090 --query 'sum(rate(container_cpu_usage_seconds_total{namespace="shop"}[5m]))' -o chart
  crane forecast --algorithm percentile --horizon 6h -o svg web.csv > web.svg`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.paths = args
			return o.run(cmd.Context(), s)
		},
	}
	fs := cmd.Flags()
	o.prometheus.addFlags(fs)
	fs.StringVar(&o.query, "query", "", "PromQL of the series, instead of files; needs --prometheus")
	fs.StringVar(&o.step, "step", "1m", "distance of the samples that --query asks for")
	fs.StringVar(&o.algorithm, "algorithm", registry.Auto, "forecaster: "+strings.Join(registry.Names(), ", "))
	o.calendar.addFlags(fs)
	fs.StringVar(&o.history, "history", "14d", "how much history the forecaster sees")
	fs.StringVar(&o.horizon, "horizon", "24h", "how far to forecast")
	fs.IntVar(&o.width, "width", 0, "columns of the chart (default: those of the terminal, or 100)")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table, json, chart or svg")
	cmd.AddCommand(newForecastScheduleCommand(s))
	return cmd
}

// complete reads and checks the flags.
func (o *forecastOptions) complete() (forecast.Algorithm, error) {
	var errs []error
	for _, flag := range []struct {
		name, text string
		into       *time.Duration
	}{
		{"--history", o.history, &o.past}, {"--horizon", o.horizon, &o.ahead}, {"--step", o.step, &o.queryStepSize},
	} {
		d, err := series.ParseDuration(flag.text)
		if err == nil && d < time.Second {
			err = fmt.Errorf("%q: must be at least 1s", flag.text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag.name, err))
		}
		*flag.into = d
	}
	if !slices.Contains([]string{outputTable, outputJSON, outputChart, outputSVG}, o.output) {
		errs = append(errs, fmt.Errorf("--output %q: want %s, %s, %s or %s", o.output, outputTable, outputJSON, outputChart, outputSVG))
	}
	if o.width != 0 && (o.width < minChartWidth || o.width > maxChartWidth) {
		errs = append(errs, fmt.Errorf("--width %d: must be %d to %d", o.width, minChartWidth, maxChartWidth))
	}
	o.prometheus.complete()
	switch {
	case o.query != "" && len(o.paths) > 0:
		errs = append(errs, errors.New("--query contradicts files: want one of them"))
	case o.query == "" && len(o.paths) == 0:
		errs = append(errs, errors.New("which series? Give files or directories, or --query"))
	case o.query != "" && o.prometheus.address == "":
		errs = append(errs, errors.New("--query needs --prometheus URL"))
	case o.query != "" && o.queryStepSize > 0 && o.past/o.queryStepSize > forecast.MaxSamples:
		errs = append(errs, fmt.Errorf("--history %s at --step %s: more than %d samples", o.history, o.step, forecast.MaxSamples))
	}
	options, err := o.calendar.options(o.algorithm)
	errs = append(errs, err)
	algorithm, err := registry.New(o.algorithm, options)
	if err != nil {
		errs = append(errs, fmt.Errorf("--algorithm: %w", err))
	}
	return algorithm, usageError(errors.Join(errs...))
}

func (o *forecastOptions) run(ctx context.Context, s Streams) error {
	algorithm, err := o.complete()
	if err != nil {
		return err
	}
	all, err := o.read(ctx, s)
	if err != nil {
		return err
	}
	var out []forecastOf
	for _, named := range all {
		history := named.Series.Between(named.Series.End().Add(-o.past), named.Series.End())
		f, err := algorithm.Forecast(history, o.ahead)
		if errors.Is(err, forecast.ErrHorizon) {
			return usageError(fmt.Errorf("--horizon %s for %s: %w", o.horizon, named.Name, err))
		}
		if err != nil {
			// What cannot be forecast is said, and the rest is still worth its forecast.
			fmt.Fprintf(s.Err, "skipping %s: %v\n", named.Name, err)
			continue
		}
		out = append(out, forecastOf{name: named.Name, algorithm: algorithm.Name(), history: history, forecast: f})
	}
	if len(out) == 0 {
		return &exitError{code: exitNothing, err: errors.New("nothing to forecast: no series has a usable sample")}
	}
	if err := o.render(s, out); err != nil {
		return fmt.Errorf("writing the forecast: %w", err)
	}
	return nil
}

// read returns the series of the files, or those that the query brings.
func (o *forecastOptions) read(ctx context.Context, s Streams) ([]requestbacktest.Named, error) {
	if o.query == "" {
		return readSeries(s.Err, o.paths)
	}
	source, err := o.prometheus.open()
	if err != nil {
		return nil, err
	}
	// The newest step is over, so that its sample is whole.
	end := o.clock().UTC().Truncate(o.queryStepSize)
	found, err := source.Range(ctx, o.query, metrics.Window{Start: end.Add(-o.past), End: end, Step: o.queryStepSize})
	if err != nil {
		return nil, err
	}
	if len(found) > mostForecasts {
		return nil, fmt.Errorf("the query brings %d series: want at most %d, sum or filter them", len(found), mostForecasts)
	}
	var all []requestbacktest.Named
	for _, f := range found {
		all = append(all, requestbacktest.Named{Name: labelText(f.Labels), Series: f.Series})
	}
	return all, nil
}

// labelText writes labels as PromQL does, in their order.
func labelText(labels metrics.Labels) string {
	names := make([]string, 0, len(labels))
	for name := range labels {
		if name != "__name__" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s=%q", name, labels[name])
	}
	return labels["__name__"] + "{" + strings.Join(names, ", ") + "}"
}
