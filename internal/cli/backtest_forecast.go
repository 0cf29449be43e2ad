// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/backtest"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/series"
)

const backtestForecastLong = `Backtest forecast holds forecasters against series of real use: from rolling origins, the first at seven days of
history, each of which sees nothing later than itself. Beside the algorithm that is asked for it runs the same minute a
day and a week ago, a plain weighted quantile of the time of day, and gocrane's dsp with its defects.

  issued    origins at which a forecast was made
  wape      sum of absolute errors of the median / sum of what happened
  pinball   loss at the quantile / mean of what happened
  coverage  share of points at or below the quantile
  skill     1 - pinball / pinball of plain, over the origins at which a forecast was made
  fit       median time of one forecast, from raw samples to quantiles

Ratios under the means are geometric means over series of the figure over that of plain, over the origins at which a
forecast was made.

A series is a CSV file with the header ts,value; other files of a directory are skipped.

Exit codes: 0 done; 1 a file cannot be read; 2 the flags are wrong; 3 no series is long enough.`

// backtestForecastOptions are the flags of `crane backtest forecast`.
type backtestForecastOptions struct {
	calendar                holidayFlags
	algorithm               string
	history, horizon, every string
	quantile                float64
	output                  string
	paths                   []string
	clock                   func() time.Time
}

func newBacktestForecastCommand(s Streams) *cobra.Command {
	o := &backtestForecastOptions{clock: time.Now}
	cmd := &cobra.Command{
		Use:   "forecast [flags] FILE|DIR...",
		Short: "Replay forecasters over series of real use",
		Long:  backtestForecastLong,
		Example: `  crane backtest forecast ./traces
  crane backtest forecast --algorithm dsp --horizon 6h --every 6h -o json ./traces`,
		RunE: func(_ *cobra.Command, args []string) error {
			o.paths = args
			return o.run(s)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.algorithm, "algorithm", registry.Auto, "forecaster to replay: "+strings.Join(registry.Names(), ", "))
	o.calendar.addFlags(fs)
	fs.StringVar(&o.history, "history", "14d", "how far back an origin may look")
	fs.StringVar(&o.horizon, "horizon", "24h", "how far each origin forecasts")
	fs.StringVar(&o.every, "every", "24h", "distance between origins")
	fs.Float64Var(&o.quantile, "quantile", 0.95, "level that pinball loss and coverage are measured at, from 0.5 to 0.99")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")
	return cmd
}

// config reads the flags.
func (o *backtestForecastOptions) config() (backtest.Config, []forecast.Algorithm, error) {
	cfg := backtest.Config{Quantile: o.quantile, Reference: registry.Plain, Clock: o.clock}
	var errs []error
	for _, flag := range []struct {
		name, text string
		into       *time.Duration
	}{
		{"--history", o.history, &cfg.History}, {"--horizon", o.horizon, &cfg.Horizon}, {"--every", o.every, &cfg.Every},
	} {
		d, err := series.ParseDuration(flag.text)
		if err == nil && d <= 0 {
			err = fmt.Errorf("%q: must be more than 0", flag.text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag.name, err))
		}
		*flag.into = d
	}
	if !(o.quantile >= 0.5 && o.quantile <= 0.99) {
		errs = append(errs, fmt.Errorf("--quantile %v: must be 0.5 to 0.99", o.quantile))
	}
	errs = append(errs, checkTableOrJSON(o.output))
	if len(o.paths) == 0 {
		errs = append(errs, errors.New("which series? Give files or directories"))
	}
	names := []string{o.algorithm}
	for _, name := range registry.Baselines() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	options, err := o.calendar.options(o.algorithm)
	errs = append(errs, err)
	algorithms := make([]forecast.Algorithm, 0, len(names))
	for _, name := range names {
		algorithm, err := registry.New(name, options)
		if err != nil {
			errs = append(errs, fmt.Errorf("--algorithm: %w", err))
		}
		algorithms = append(algorithms, algorithm)
	}
	return cfg, algorithms, usageError(errors.Join(errs...))
}

func (o *backtestForecastOptions) run(s Streams) error {
	cfg, algorithms, err := o.config()
	if err != nil {
		return err
	}
	all, err := readSeries(s.Err, o.paths)
	if err != nil {
		return err
	}
	var results []backtest.Result
	for _, named := range all {
		scored, err := backtest.Run(cfg, named.Name, named.Series, algorithms)
		switch {
		case err != nil:
			// What could not be scored is said, and the rest is still worth its report.
			fmt.Fprintln(s.Err, "skipping", err)
		case scored[0].Origins == 0:
			fmt.Fprintf(s.Err, "skipping %s: it is too short for an origin with %s of history and %s of future\n", named.Name,
				series.FormatDuration(7*24*time.Hour), o.horizon)
		default:
			results = append(results, scored...)
		}
	}
	if len(results) == 0 {
		return &exitError{code: exitNothing, err: errors.New("nothing to score: no series is long enough")}
	}
	report := backtest.NewReport(results)
	if o.output == outputJSON {
		err = encodeJSON(s.Out, report)
	} else {
		err = renderForecastTable(s.Out, report)
	}
	if err != nil {
		return fmt.Errorf("writing the backtest: %w", err)
	}
	return nil
}

func renderForecastTable(w io.Writer, report backtest.Report) error {
	scores := newFigureTable("SERIES", "ALGORITHM", "ISSUED", "WAPE", "PINBALL", "COVERAGE", "SKILL", "FIT MS")
	for _, r := range report.Series {
		scores.AppendRow(table.Row{
			r.Name, r.Algorithm, fmt.Sprintf("%d/%d", r.Issued, r.Origins), figure(r.WAPE), figure(r.Pinball),
			figure(r.Coverage), figure(r.Skill), figure(r.FitMillis),
		})
	}
	for _, m := range report.Mean {
		scores.AppendRow(table.Row{
			"mean", m.Algorithm, fmt.Sprintf("%d/%d", m.Issued, m.Origins), figure(m.WAPE), figure(m.Pinball),
			figure(m.Coverage), figure(m.Skill), figure(m.FitMillis),
		})
	}
	ratios := newFigureTable("RATIO TO PLAIN", "WAPE", "PINBALL")
	for _, m := range report.Mean {
		ratios.AppendRow(table.Row{m.Algorithm, figure(m.WAPERatio), figure(m.PinballRatio)})
	}
	_, err := fmt.Fprintf(w, "%s\n\n%s\n", scores.Render(), ratios.Render())
	return err
}

func figure(f backtest.Figure) string {
	if math.IsNaN(float64(f)) {
		return nothing
	}
	return fmt.Sprintf("%.3f", float64(f))
}
