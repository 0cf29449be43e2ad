// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/rightsize/requestbacktest"
	"crane.io/crane/pkg/series"
)

const forecastLong = `Forecast predicts a time series: quantiles for each step of the horizon, with the model, its skill and the reason for a fallback
to a simpler model.

The series are CSV files with the header ts,value, forecast from their newest sample, or the result of --query in Prometheus.

  skill    1 - loss / loss of a constant, the 0.95 quantile of the samples before each origin, from a replay of the series at
           daily origins with forecasts of 24 h: 1 is perfect, 0 equals the constant. crane backtest forecast prints the same
  periods  complete seasons (days if there is no season) in the history of the model

Exit codes: 0 success; 1 a file or Prometheus cannot be read; 2 the flags are invalid; 3 there is no series to forecast.`

// The output formats of `crane forecast` beside table and JSON.
const (
	outputChart = "chart"
	outputSVG   = "svg"
)

// maxForecasts limits the number of series of a query.
const maxForecasts = 100

// forecastOptions are the flags of `crane forecast`.
type forecastOptions struct {
	prometheus                               *historyserver.Server
	calendar                                 holidayFlags
	query, step                              string
	algorithm                                string
	history, horizon                         string
	output                                   string
	width                                    int
	paths                                    []string
	clock                                    func() time.Time
	historyLength, horizonLength, stepLength time.Duration
}

// seriesForecast is a series and its forecast.
type seriesForecast struct {
	name      string
	algorithm string
	history   series.Series
	forecast  forecast.Forecast
}

func newForecastCommand(s Streams) *cobra.Command {
	o := &forecastOptions{prometheus: historyserver.NewServer(), clock: time.Now}
	cmd := &cobra.Command{
		Use:   "forecast [flags] FILE|DIR... | --query EXPR",
		Short: "Forecast time series with quantiles",
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

	flags := cmd.Flags()
	addPrometheusFlags(flags, o.prometheus)
	flags.StringVar(&o.query, "query", "", "PromQL query of the series, instead of files; requires --prometheus")
	flags.StringVar(&o.step, "step", "1m", "step of the samples of --query")
	flags.StringVar(&o.algorithm, "algorithm", registry.Auto, "forecaster: "+strings.Join(registry.Names(), ", "))
	o.calendar.addFlags(flags)
	flags.StringVar(&o.history, "history", "14d", "length of the history")
	flags.StringVar(&o.horizon, "horizon", "24h", "length of the forecast")
	flags.IntVar(&o.width, "width", 0, "width of the chart in columns (default: that of the terminal, or 100)")
	flags.StringVarP(&o.output, "output", "o", outputTable, "output format: table, json, chart or svg")

	return cmd
}

// complete parses and validates the flags.
func (o *forecastOptions) complete() (forecast.Algorithm, error) {
	errs := []error{parseDurations(
		durationFlag{"--history", o.history, &o.historyLength}, durationFlag{"--horizon", o.horizon, &o.horizonLength}, durationFlag{"--step", o.step, &o.stepLength},
	)}

	if !slices.Contains([]string{outputTable, outputJSON, outputChart, outputSVG}, o.output) {
		errs = append(errs, fmt.Errorf("--output %q: want %s, %s, %s or %s", o.output, outputTable, outputJSON, outputChart, outputSVG))
	}
	if o.width != 0 && (o.width < minChartWidth || o.width > maxChartWidth) {
		errs = append(errs, fmt.Errorf("--width %d: must be %d to %d", o.width, minChartWidth, maxChartWidth))
	}

	o.prometheus.Complete()
	switch {
	case o.query != "" && len(o.paths) > 0:
		errs = append(errs, errors.New("--query and files are mutually exclusive"))
	case o.query == "" && len(o.paths) == 0:
		errs = append(errs, errors.New("missing argument: want files or directories with series, or --query"))
	case o.query != "" && o.prometheus.Address == "":
		errs = append(errs, errors.New("--query requires --prometheus URL"))
	// A forecast uses no more samples, so more are not read.
	case o.query != "" && o.stepLength > 0 && o.historyLength/o.stepLength > forecast.MaxSamples:
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

	progress := progressline.New(s.Err, "reading the history", nil)
	defer progress.Stop()

	all, err := o.read(ctx, s)
	if err != nil {
		return err
	}

	var out []seriesForecast
	for i, named := range all {
		progress.SetPhase(fmt.Sprintf("forecasting %d of %d series", i+1, len(all)))
		history := named.Series.Between(named.Series.End().Add(-o.historyLength), named.Series.End())

		f, err := algorithm.Forecast(history, o.horizonLength)
		// The horizon is wrong for every series, other errors are those of one.
		if errors.Is(err, forecast.ErrHorizon) {
			return usageError(fmt.Errorf("--horizon %s for %s: %w", o.horizon, named.Name, err))
		}
		if err != nil {
			termtext.Fprintf(progress, "skipping %s: %v\n", named.Name, err)
			continue
		}

		out = append(out, seriesForecast{
			name:      named.Name,
			algorithm: algorithm.Name(),
			history:   history,
			forecast:  f,
		})
	}

	if len(out) == 0 {
		return &exitError{code: exitNoResult, err: errors.New("nothing to forecast: no series has a usable sample")}
	}

	progress.Stop()
	if err := o.render(s, out); err != nil {
		return fmt.Errorf("writing the forecast: %w", err)
	}

	return nil
}

// read returns the series of the files or of the query.
func (o *forecastOptions) read(ctx context.Context, s Streams) ([]requestbacktest.Named, error) {
	if o.query == "" {
		return readSeries(s.Err, o.paths)
	}

	source, err := o.prometheus.Open()
	if err != nil {
		return nil, err
	}

	// The window ends with a completed step.
	end := o.clock().UTC().Truncate(o.stepLength)

	found, err := source.Range(ctx, o.query, metrics.Window{Start: end.Add(-o.historyLength), End: end, Step: o.stepLength})
	if err != nil {
		return nil, err
	}

	if len(found) > maxForecasts {
		return nil, fmt.Errorf("the query returns %d series, want at most %d: aggregate or filter them", len(found), maxForecasts)
	}

	var all []requestbacktest.Named
	for _, f := range found {
		all = append(all, requestbacktest.Named{Name: seriesName(f.Labels, o.query), Series: f.Series})
	}

	return all, nil
}

// seriesName formats labels as in PromQL, sorted by name. A series without labels, such as a sum, is named by its query.
func seriesName(labels metrics.Labels, query string) string {
	names := make([]string, 0, len(labels))
	for name := range labels {
		if name != "__name__" {
			names = append(names, name)
		}
	}

	if len(names) == 0 {
		return cmp.Or(labels["__name__"], strings.Join(strings.Fields(query), " "))
	}

	slices.Sort(names)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s=%q", name, labels[name])
	}

	return labels["__name__"] + "{" + strings.Join(names, ", ") + "}"
}
