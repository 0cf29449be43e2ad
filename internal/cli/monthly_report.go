// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/recommendation/savingsrecord"
	"crane.io/crane/pkg/savings"
)

const reportLong = `Report prints, for one month in UTC, what the nodes cost, what the adopted recommendations promised to save, and what they saved: by
namespace, at the prices of craned's price book. craned records both every few minutes in the ConfigMap crane-savings of its
namespace, for 36 months. Prometheus is not read.

Promised is the price of the difference between the requests before the adoption and the recommended ones; realized is that of the
difference to the requests of the running pods. A lower request releases capacity; the bill falls when nodes are removed. Time
without a running craned is in no amount and is printed as not observed.

The output csv has the columns of FOCUS 1.1, with the savings in columns that begin with x_.

Exit codes: 0 the month is recorded; 1 the record cannot be read; 2 the flags are invalid; 3 the month is not recorded.`

const reportExample = `  crane report --month 2026-11
  crane report --month 2026-11 -o html > report.html
  crane report --month 2026-11 -o csv > focus.csv`

// reportOptions are the flags of `crane report`.
type reportOptions struct {
	kubernetes      clusteraccess.Access
	cranedNamespace string
	month           string
	output          string
}

// monthlyReport is the result of `crane report`.
type monthlyReport struct {
	month time.Time
	// until is the end of the observed time.
	until    time.Time
	accounts []savings.Account
	// cluster identifies the cluster: the UID of the namespace kube-system. It is read for CSV alone.
	cluster string
	server  string
}

func newReportCommand(s Streams) *cobra.Command {
	o := &reportOptions{}
	cmd := &cobra.Command{
		Use:     "report",
		Short:   "Print the promised and the realized savings of a month",
		Long:    reportLong,
		Example: reportExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), s, time.Now())
		},
	}

	fs := cmd.Flags()
	addKubernetesFlags(fs, &o.kubernetes)
	fs.StringVar(&o.cranedNamespace, "craned-namespace", "crane-system", "namespace of craned and of its record of savings")
	fs.StringVar(&o.month, "month", "", "month of the report, for example 2026-11 (default: the current month in UTC)")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table, markdown, html, csv or json")

	return cmd
}

func (o *reportOptions) run(ctx context.Context, s Streams, now time.Time) error {
	renderers := map[string]func(io.Writer, *monthlyReport) error{
		outputTable: renderReportTable, outputMarkdown: renderReportMarkdown, outputHTML: renderReportHTML,
		outputCSV: renderReportCSV, outputJSON: renderReportJSON,
	}

	render, ok := renderers[o.output]
	if !ok {
		return usageError(fmt.Errorf("--output %q: want %s", o.output, strings.Join(slices.Sorted(maps.Keys(renderers)), ", ")))
	}

	month, err := savings.ParseMonth(cmp.Or(o.month, now.UTC().Format(savings.MonthLayout)))
	if err != nil {
		return usageError(fmt.Errorf("--month: %w", err))
	}

	c, err := o.kubernetes.ObjectClient()
	if err != nil {
		return err
	}

	r, err := o.read(ctx, c, month, func(warning error) { termtext.Fprintf(s.Err, "Warning: %v\n", warning) })
	if err != nil {
		return err
	}

	r.server = o.kubernetes.ServerName()
	if err := render(s.Out, r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}

	return nil
}

// read reads the record of a month. Other months that cannot be read are a warning.
func (o *reportOptions) read(ctx context.Context, c client.Reader, month time.Time, warn func(error)) (*monthlyReport, error) {
	record, err := savingsrecord.Load(ctx, c, o.cranedNamespace)
	if err != nil {
		// | len|A damaged month does not hide the others.
		if record == nil || len(record.Months[month.Format(savings.MonthLayout)]) == 0 {
			return nil, err
		}

		warn(err)
	}

	if record == nil {
		return nil, &exitError{code: exitNoResult, err: fmt.Errorf(
			"no ConfigMap %s/%s: craned (--controllers with cost) writes it after two intervals of --cost-interval", o.cranedNamespace, savingsrecord.ConfigMapName)}
	}

	out := &monthlyReport{month: month, until: record.Until, accounts: record.Months[month.Format(savings.MonthLayout)]}
	if len(out.accounts) == 0 {
		recorded := slices.Sorted(maps.Keys(record.Months))
		return nil, &exitError{code: exitNoResult, err: fmt.Errorf(
			"month %s is not recorded; recorded are: %s", month.Format(savings.MonthLayout), cmp.Or(strings.Join(recorded, ", "), "none"))}
	}

	if o.output == outputCSV {
		system := &corev1.Namespace{}
		if err := c.Get(ctx, client.ObjectKey{Name: "kube-system"}, system); err != nil {
			return nil, fmt.Errorf("identifying the cluster by the UID of namespace kube-system: %w", err)
		}

		if out.cluster = string(system.UID); out.cluster == "" {
			return nil, errors.New("identifying the cluster: namespace kube-system has no UID")
		}
	}

	return out, nil
}

// elapsed returns the hours of the month until its end, or until the end of the record.
func (r *monthlyReport) elapsed() float64 {
	end := r.month.AddDate(0, 1, 0)
	if r.until.Before(end) {
		end = r.until
	}

	return end.Sub(r.month).Hours()
}

// observed returns the hours of all accounts.
func (r *monthlyReport) observed() float64 {
	sum := 0.0
	for _, a := range r.accounts {
		sum += a.Total().Hours
	}

	return sum
}

// unknown returns the largest number of adopted workloads whose saving could not be determined.
func (r *monthlyReport) unknown() int {
	largest := 0
	for _, a := range r.accounts {
		largest = max(largest, a.Total().Unknown)
	}

	return largest
}
