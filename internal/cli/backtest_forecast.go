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

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/backtest"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/units"
)

const backtestForecastLong = `Backtest forecast evaluates forecasters against measured series. It forecasts from rolling origins, the first after seven days
of history; each origin uses only earlier samples. The selected algorithm is compared with the same minute of the previous day
and of the previous week, a weighted quantile of the time of day, and gocrane's dsp with its defects.

  issued    origins with a forecast
  wape      sum of absolute errors of the median / sum of the actual values
  pinball   quantile loss / mean of the actual values
  coverage  share of points at or below the quantile
  skill     1 - pinball / pinball of a constant, the quantile of the samples before each origin; as in crane forecast
  fit       median time of one forecast, from raw samples to quantiles

The ratios below the means are geometric means over the series of the figure divided by that of plain, over the origins with a
forecast.

A series is a CSV file with the header ts,value; other files of a directory are skipped.

Exit codes: 0 success; 1 a file cannot be read; 2 the flags are invalid; 3 no series is long enough.`

// backtestForecastOptions are the flags of `crane backtest forecast`.
type backtestForecastOptions struct {
	calendar                   holidayFlags
	algorithm                  string
	history, horizon, interval string
	quantile                   float64
	output                     string
	paths                      []string
	clock                      func() time.Time
}

func newBacktestForecastCommand(s Streams) *cobra.Command {
	o := &backtestForecastOptions{clock: time.Now}
	cmd := &cobra.Command{
		Use:   "forecast [flags] FILE|DIR...",
		Short: "Back-test forecasters against measured series",
		Long:  backtestForecastLong,
		Example: `  crane backtest forecast ./traces
  crane backtest forecast --algorithm dsp --horizon 6h --every 6h -o json ./traces`,
		RunE: func(_ *cobra.Command, args []string) error {
			o.paths = args
			return o.run(s)
		},
	}

	fs := cmd.Flags()
	fs.StringVar(&o.algorithm, "algorithm", registry.Auto, "forecaster to test: "+strings.Join(registry.Names(), ", "))
	o.calendar.addFlags(fs)
	fs.StringVar(&o.history, "history", "14d", "length of the history before an origin")
	fs.StringVar(&o.horizon, "horizon", "24h", "length of the forecast of each origin")
	fs.StringVar(&o.interval, "every", "24h", "distance between origins")
	fs.Float64Var(&o.quantile, "quantile", 0.95, "quantile of the pinball loss and the coverage, from 0.5 to 0.99")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")

	return cmd
}

// config validates the flags and returns the configuration and the algorithms.
func (o *backtestForecastOptions) config() (backtest.Config, []forecast.Algorithm, error) {
	cfg := backtest.Config{Quantile: o.quantile, Reference: registry.Plain, Clock: o.clock}
	errs := []error{parseDurations(
		durationFlag{"--history", o.history, &cfg.History}, durationFlag{"--horizon", o.horizon, &cfg.Horizon}, durationFlag{"--every", o.interval, &cfg.Every},
	)}

	if !(o.quantile >= 0.5 && o.quantile <= 0.99) {
		errs = append(errs, fmt.Errorf("--quantile %v: must be 0.5 to 0.99", o.quantile))
	}

	errs = append(errs, checkTableOrJSON(o.output))
	if len(o.paths) == 0 {
		errs = append(errs, errors.New("missing argument: want files or directories with series"))
	}

	// The baselines are scored as well: a score alone says little.
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

	progress := progressline.New(s.Err, "reading the files", nil)
	defer progress.Stop()

	all, err := readSeries(s.Err, o.paths)
	if err != nil {
		return err
	}

	var results []backtest.Result
	for i, named := range all {
		progress.SetPhase(fmt.Sprintf("replaying %d of %d series", i+1, len(all)))
		scored, err := backtest.Run(cfg, named.Name, named.Series, algorithms)
		switch {
		case err != nil:
			termtext.Fprintln(progress, "skipping", err)
		case scored[0].Origins == 0:
			termtext.Fprintf(progress, "skipping %s: too short for an origin with %s of history and a horizon of %s\n", named.Name,
				units.FormatDuration(7*24*time.Hour), o.horizon)
		default:
			results = append(results, scored...)
		}
	}

	// A report without any series would look like a success.
	if len(results) == 0 {
		return &exitError{code: exitNoResult, err: errors.New("nothing to score: no series is long enough")}
	}

	progress.Stop()
	return writeReport(s.Out, o.output, "back-test", backtest.NewReport(results), renderForecastTable)
}

func renderForecastTable(w io.Writer, report backtest.Report) error {
	scores := newFigureTable("SERIES", "ALGORITHM", "ISSUED", "WAPE", "PINBALL", "COVERAGE", "SKILL", "FIT MS")
	for _, r := range report.Series {
		scores.AppendRow(table.Row{
			r.Name, r.Algorithm, fmt.Sprintf("%d/%d", r.Issued, r.Origins), formatFigure(r.WAPE), formatFigure(r.Pinball),
			formatFigure(r.Coverage), formatFigure(r.Skill), formatFigure(r.FitMillis),
		})
	}

	for _, m := range report.Mean {
		scores.AppendRow(table.Row{
			"mean", m.Algorithm, fmt.Sprintf("%d/%d", m.Issued, m.Origins), formatFigure(m.WAPE), formatFigure(m.Pinball),
			formatFigure(m.Coverage), formatFigure(m.Skill), formatFigure(m.FitMillis),
		})
	}

	ratios := newFigureTable("RATIO TO PLAIN", "WAPE", "PINBALL")
	for _, m := range report.Mean {
		ratios.AppendRow(table.Row{m.Algorithm, formatFigure(m.WAPERatio), formatFigure(m.PinballRatio)})
	}

	_, err := termtext.Fprintf(w, "%s\n\n%s\n", termtext.Trusted(scores.Render()), termtext.Trusted(ratios.Render()))
	return err
}

func formatFigure(f backtest.Figure) string {
	if math.IsNaN(float64(f)) {
		return emptyCell
	}

	return fmt.Sprintf("%.3f", float64(f))
}
