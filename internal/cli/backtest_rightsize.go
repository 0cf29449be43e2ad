// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/metrics/csv"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/rightsize/requestbacktest"
	"crane.io/crane/pkg/rightsize/requestbacktest/generate"
	"crane.io/crane/pkg/units"
)

const backtestRightsizeLong = `Backtest rightsize evaluates sizing policies against measured series. Each policy decides at midnight UTC from earlier samples
only, the first time after seven days of history. Most policies set one request a day. For CPU, crane-calibrated requests a
quantile of each three hours times the factor that met --target in a replay of the previous days, and reacts to usage that is at least
two minutes old; crane-calibrated-constant does so with one request a day and without reactions; crane-calibrated-adopted adds
reactions to that, as craned does where it applies the recommendation.

  cost       sum of the requests over the sum of the need, the largest sample of each day that is scored
  min/day    time above the request in minutes a day
  longest    duration of the longest uninterrupted time above the request
  slack      1 - sum(use)/sum(request): the unused share of the request
  violation  share of samples with usage above the request
  overrun    usage above the request as a share of all usage
  oomDays    days with a sample above the limit (memory only)
  changes    mean number of request changes per day: above 10 % between days; every change within a day

The row "mean" counts all series the same (cost: geometric mean, longest: median), "by size" counts each by its need, as money
does; the latter has a meaning only for series of one unit. A series for which some policy requests nothing at all is left out
and named.

A series is a CSV file with the header ts,value; other files of a directory are skipped. Rounding, minimums and maximums are not
applied, so that a series can have any unit. --generated creates seeded memory series instead of reading files.

Exit codes: 0 success; 1 a file cannot be read; 2 the flags are invalid; 3 no series is long enough.`

// backtestRightsizeOptions are the flags of `crane backtest rightsize`.
type backtestRightsizeOptions struct {
	policies  []string
	resource  string
	output    string
	target    float64
	generated int
	days      int
	seed      uint64
	paths     []string
}

func newBacktestRightsizeCommand(s Streams) *cobra.Command {
	o := &backtestRightsizeOptions{}
	cmd := &cobra.Command{
		Use:   "rightsize [flags] FILE|DIR...",
		Short: "Back-test sizing policies against measured series",
		Long:  backtestRightsizeLong,
		Example: `  crane backtest rightsize ./traces
  crane backtest rightsize --policy crane-default --policy vpa -o json ./traces
  crane backtest rightsize --resource memory --generated 40 --seed 1`,
		RunE: func(_ *cobra.Command, args []string) error {
			o.paths = args
			return o.run(s)
		},
	}

	fs := cmd.Flags()
	fs.StringArrayVar(&o.policies, "policy", nil, "policy to test, may be repeated (default: all): crane-default, crane-latency-sensitive, crane-batch, crane-calibrated-constant, gocrane, vpa, krr-p95, krr-p99, crane-calibrated and crane-calibrated-adopted (CPU only), or a policy file")
	fs.StringVar(&o.resource, "resource", string(units.CPU), "resource of the series: cpu or memory")
	fs.Float64Var(&o.target, "target", float64(calibrate.DefaultTarget), targetFlagHelp)
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")
	fs.IntVar(&o.generated, "generated", 0, "number of memory series to generate, instead of reading files")
	fs.IntVar(&o.days, "days", 28, "length of the generated series in days")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of the generated series")

	return cmd
}

func (o *backtestRightsizeOptions) validate() error {
	const maxBacktestDays = 10_000
	var errs []error
	errs = append(errs, checkTableOrJSON(o.output), checkTarget(o.target))
	switch {
	case o.generated < 0 || o.generated > maxBacktestDays:
		errs = append(errs, fmt.Errorf("--generated %d: must be 0 to %d", o.generated, maxBacktestDays))
	case o.generated > 0 && len(o.paths) > 0:
		errs = append(errs, errors.New("--generated and files are mutually exclusive"))
	case o.generated > 0 && o.resource != string(units.Memory):
		errs = append(errs, errors.New("--generated requires --resource memory"))
	case o.generated == 0 && len(o.paths) == 0:
		errs = append(errs, errors.New("missing argument: want files or directories with series, or --generated N"))
	}

	if o.days < 8 || o.days > 366 {
		errs = append(errs, fmt.Errorf("--days %d: must be 8 to 366", o.days))
	}

	return errors.Join(errs...)
}

func (o *backtestRightsizeOptions) run(s Streams) error {
	rules, err := o.rules()
	if err := errors.Join(err, o.validate()); err != nil {
		return usageError(err)
	}

	progress := progressline.New(s.Err, "replaying the policies", nil)
	defer progress.Stop()

	var all []requestbacktest.Named
	if o.generated > 0 {
		all = generate.Memory(o.seed, o.generated, o.days)
	} else if all, err = readSeries(s.Err, o.paths); err != nil {
		return err
	}

	report, err := requestbacktest.Run(all, rules, units.Resource(o.resource))
	progress.Stop()

	// Series that cannot be scored are notes as long as others can.
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			termtext.Fprintln(s.Err, "skipping", strings.TrimSpace(line))
		}
	}

	if len(report.LeftOut) > 0 {
		termtext.Fprintln(s.Err, "left out, because some policy requests nothing:", strings.Join(report.LeftOut, ", "))
	}

	if len(report.Series) == 0 {
		return &exitError{code: exitNoResult, err: errors.New("nothing to score: no series is long enough and in use")}
	}

	return writeReport(s.Out, o.output, "back-test", report, renderRightsizeTable)
}

// rules returns the named policies and policy files in the given order, or all built-in policies if none is given.
func (o *backtestRightsizeOptions) rules() ([]requestbacktest.Rule, error) {
	resource := units.Resource(o.resource)
	target := units.Ratio(o.target)
	// Without --policy, all formulas are compared.
	if len(o.policies) == 0 {
		rules, err := requestbacktest.Rules(resource)
		return withTarget(rules, target, resource), err
	}

	var rules []requestbacktest.Rule
	for _, name := range o.policies {
		if isPolicyFile(name) {
			policy, err := loadPolicy(name)
			if err != nil {
				return nil, err
			}

			rules = append(rules, requestbacktest.OfPolicy(policy, resource))
			continue
		}

		named, err := requestbacktest.Rules(resource, name)
		if err != nil {
			return nil, fmt.Errorf("--policy: %w", err)
		}

		rules = append(rules, named...)
	}

	return withTarget(rules, target, resource), nil
}

// withTarget replaces the calibrated rules by those of a target.
func withTarget(rules []requestbacktest.Rule, target units.Ratio, resource units.Resource) []requestbacktest.Rule {
	for i, r := range rules {
		switch r.Name {
		case requestbacktest.Calibrated:
			s := calibrate.DefaultSettings()
			s.Target = target
			rules[i] = requestbacktest.OfCalibration(r.Name, s)
		case requestbacktest.CalibratedAdopted:
			rules[i] = requestbacktest.OfAdoption(r.Name, target)

		case requestbacktest.CalibratedConstant:
			if policy, err := rightsize.PolicyByName(rightsize.CalibratedPolicy); err == nil {
				policy.CPU.Target = target
				rules[i] = requestbacktest.OfPolicy(policy, resource)
			}
		}
	}

	return rules
}

// readSeries reads files and directories. An invalid file is skipped with a warning in a directory, and an error if
// it was named.
func readSeries(warnings io.Writer, paths []string) ([]requestbacktest.Named, error) {
	var all []requestbacktest.Named
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("reading series: %w", err)
		}

		if !info.IsDir() {
			file, err := csv.ReadFile(path)
			if err != nil {
				return nil, err
			}

			all = append(all, requestbacktest.Named{Name: file.Name, Series: file.Series})
			continue
		}

		files, skipped, err := csv.ReadDir(path)
		if err != nil {
			return nil, err
		}

		// A directory may have other files, a file that is named must be a series.
		for _, skip := range skipped {
			termtext.Fprintln(warnings, skip)
		}

		for _, file := range files {
			all = append(all, requestbacktest.Named{Name: file.Name, Series: file.Series})
		}
	}

	return all, nil
}

func renderRightsizeTable(w io.Writer, report requestbacktest.Report) error {
	t := newFigureTable("SERIES", "POLICY", "COST", "MIN/DAY", "LONGEST", "SLACK", "VIOLATION", "OVERRUN", "OOM DAYS", "CHANGES/DAY")
	row := func(name string, s requestbacktest.Score) table.Row {
		ooms := emptyCell
		if s.OOMDays != nil {
			ooms = fmt.Sprintf("%.4g", *s.OOMDays)
		}

		return table.Row{
			name, s.Policy, fmt.Sprintf("%.3f", s.Cost), fmt.Sprintf("%.1f", s.MinutesAbove),
			units.FormatDuration(time.Duration(s.LongestAbove * float64(time.Minute))), fmt.Sprintf("%.3f", s.Slack), fmt.Sprintf("%.2f %%", 100*s.Violation),
			fmt.Sprintf("%.4f", s.Overrun), ooms, fmt.Sprintf("%.2f", s.Changes),
		}
	}

	for _, s := range report.Series {
		t.AppendRow(row(s.Name, s))
	}

	for _, s := range report.Mean {
		t.AppendRow(row("mean", s))
	}

	for _, s := range report.Weighted {
		t.AppendRow(row("by size", s))
	}

	_, err := termtext.Fprintln(w, termtext.Trusted(t.Render()))
	return err
}
