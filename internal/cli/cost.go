// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/workloadname"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/recommendation/allocation"
	"crane.io/crane/internal/recommendation/pricebook"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/units"
)

const costLong = `Cost allocates the prices of nodes to the workloads on them: by requests, by usage, and by the larger of the two. Capacity that
no workload requests or uses is idle. For each of the three methods, workloads plus idle capacity equal the price of the nodes.

Nodes and pods are listed from the Kubernetes API of the kubeconfig, or from kube-state-metrics in Prometheus if there is no
kubeconfig. The usage of pods is the mean over the last hour (--window) in Prometheus. If no Prometheus is set or discovered in
the cluster, only requests are counted. The command changes nothing.

With --namespace, only these namespaces are listed. Idle capacity belongs to the whole cluster and is left out of the table then.

Exit codes: 0 nodes are priced; 1 the command failed; 2 the flags are invalid; 3 there is no node to price, or a namespace has no pod.`

const costExample = `  crane cost --prometheus http://localhost:9090
  crane cost --by namespace --price-book prices.yaml
  crane cost -n shop
  crane cost --prometheus http://localhost:9090 -o json`

// The groupings of `crane cost`.
const (
	byWorkload  = "workload"
	byNamespace = "namespace"
	byNode      = "node"
)

// costOptions are the flags of `crane cost`.
type costOptions struct {
	prometheus *historyserver.Server
	kubernetes *clusteraccess.Access
	grouping   string
	namespaces []string
	window     string
	priceBook  string
	output     string

	// prices and windowLength are derived from the flags.
	prices       *cost.PriceBook
	windowLength time.Duration
}

// costReport is the result of `crane cost`.
type costReport struct {
	*allocation.Report

	grouping string
	// windowText is the window as given by the user.
	windowText string
	// selected is the sum of the selected namespaces; nil for all.
	selected *cost.Bill
}

func newCostCommand(s Streams) *cobra.Command {
	o := &costOptions{prometheus: historyserver.NewServer(), kubernetes: &clusteraccess.Access{}}
	cmd := &cobra.Command{
		Use:     "cost",
		Short:   "Print the cost of workloads and of idle capacity",
		Long:    costLong,
		Example: costExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.prometheus.Complete()
			if err := o.complete(); err != nil {
				return usageError(err)
			}

			return o.run(cmd.Context(), s)
		},
	}

	fs := cmd.Flags()
	addPrometheusFlags(fs, o.prometheus)
	addKubernetesFlags(fs, o.kubernetes)
	fs.StringVar(&o.grouping, "by", byWorkload, "rows of the table: workload, namespace or node")
	fs.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "namespaces to list (default: all); may be repeated")
	fs.StringVar(&o.window, "window", "1h", "length of the window of the mean usage, for example 1d")
	fs.StringVar(&o.priceBook, "price-book", "", "YAML or JSON file with the prices of nodes (default: approximate prices; see docs/reference/cost.md)")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")

	return cmd
}

// complete derives the prices and the window, and validates the flags.
func (o *costOptions) complete() error {
	var errs []error
	if !slices.Contains([]string{byWorkload, byNamespace, byNode}, o.grouping) {
		errs = append(errs, fmt.Errorf("--by %q: want %s, %s or %s", o.grouping, byWorkload, byNamespace, byNode))
	}
	if o.grouping == byNode && len(o.namespaces) > 0 {
		errs = append(errs, errors.New("--by node lists nodes, which have no namespace: omit --namespace"))
	}

	errs = append(errs, checkTableOrJSON(o.output))
	var err error
	if o.prices, err = pricebook.Load(o.priceBook); err != nil {
		errs = append(errs, fmt.Errorf("--price-book: %w", err))
	}

	o.windowLength, err = units.ParseDuration(o.window)
	const shortest = 5 * time.Minute // A rate requires several scrapes.
	switch {
	case err != nil:
		errs = append(errs, fmt.Errorf("--window: %w", err))
	case o.windowLength < shortest:
		errs = append(errs, fmt.Errorf("--window %s: want at least %s", o.window, shortest))
	}

	return errors.Join(errs...)
}

func (o *costOptions) run(ctx context.Context, s Streams) error {
	costs := allocation.Allocator{
		Prometheus: o.prometheus,
		Kubernetes: o.kubernetes,
		Window:     o.windowLength,
		Prices:     o.prices,
		Output:     s.Err,
	}

	found, err := costs.Allocate(ctx)
	if err != nil {
		return err
	}

	report := &costReport{Report: found, grouping: o.grouping, windowText: o.window}

	// Without nodes, every namespace would be reported as misspelled.
	if len(report.Nodes) > 0 {
		if err := report.selectNamespaces(o.namespaces); err != nil {
			return err
		}
	}

	render := renderCostTable
	if o.output == outputJSON {
		render = renderCostJSON
	}

	if err := render(s.Out, report); err != nil {
		return fmt.Errorf("writing the costs: %w", err)
	}

	if len(report.Nodes) == 0 {
		return &exitError{code: exitNoResult, err: errors.New("there is no node to price")}
	}

	return nil
}

// selectNamespaces reduces the report to some namespaces, each of which must have a pod; none selects all.
func (r *costReport) selectNamespaces(names []string) error {
	if len(names) == 0 {
		return nil
	}

	namespaces := make([]string, 0, len(r.Namespaces))
	for _, n := range r.Namespaces {
		namespaces = append(namespaces, n.Namespace)
	}

	for _, name := range names {
		if !slices.Contains(namespaces, name) {
			return &exitError{code: exitNoResult, err: fmt.Errorf("namespace %s has no pod on a node%s", name, workloadname.DidYouMean(name, namespaces))}
		}
	}

	var sum cost.Bill
	r.Workloads, r.Namespaces, sum = r.InNamespaces(names)
	r.selected = &sum

	return nil
}
