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

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/recommendation/pricebook"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/series"
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
	prometheus *prometheusFlags
	kubernetes *kubernetesFlags
	by         string
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
	by     string
	now    time.Time
	window time.Duration
	// windowText is the window as given by the user.
	windowText string
	book       *cost.PriceBook
	// withUsage is set if usage was read.
	withUsage bool
	// selected is the sum of the selected namespaces; nil for all.
	selected *cost.Bill
	sources  sources
	cost.Allocation
}

func newCostCommand(s Streams) *cobra.Command {
	o := &costOptions{prometheus: newPrometheusFlags(), kubernetes: &kubernetesFlags{}}
	cmd := &cobra.Command{
		Use:     "cost",
		Short:   "Print the cost of workloads and of idle capacity",
		Long:    costLong,
		Example: costExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.prometheus.complete()
			if err := o.complete(); err != nil {
				return usageError(err)
			}

			return o.run(cmd.Context(), s)
		},
	}

	fs := cmd.Flags()
	o.prometheus.addFlags(fs)
	o.kubernetes.addFlags(fs)
	fs.StringVar(&o.by, "by", byWorkload, "rows of the table: workload, namespace or node")
	fs.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "namespaces to list (default: all); may be repeated")
	fs.StringVar(&o.window, "window", "1h", "length of the window of the mean usage, for example 1d")
	fs.StringVar(&o.priceBook, "price-book", "", "YAML or JSON file with the prices of nodes (default: approximate prices; see docs/reference/cost.md)")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")

	return cmd
}

// complete derives the prices and the window, and validates the flags.
func (o *costOptions) complete() error {
	var errs []error
	if !slices.Contains([]string{byWorkload, byNamespace, byNode}, o.by) {
		errs = append(errs, fmt.Errorf("--by %q: want %s, %s or %s", o.by, byWorkload, byNamespace, byNode))
	}
	if o.by == byNode && len(o.namespaces) > 0 {
		errs = append(errs, errors.New("--by node lists nodes, which have no namespace: omit --namespace"))
	}

	errs = append(errs, checkTableOrJSON(o.output))
	var err error
	if o.prices, err = pricebook.Load(o.priceBook); err != nil {
		errs = append(errs, fmt.Errorf("--price-book: %w", err))
	}

	o.windowLength, err = series.ParseDuration(o.window)
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
	report, err := o.gather(ctx, s)
	if err != nil {
		return err
	}

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
		return fmt.Errorf("failed to write the costs: %w", err)
	}

	if len(report.Nodes) == 0 {
		return &exitError{code: exitNoResult, err: errors.New("there is no node to price")}
	}

	return nil
}

// gather reads the cluster and the usage of its pods, and allocates the cost.
func (o *costOptions) gather(ctx context.Context, s Streams) (*costReport, error) {
	report := &costReport{
		by:         o.by,
		now:        time.Now(),
		window:     o.windowLength,
		windowText: o.window,
		book:       o.prices,
	}

	source, err := o.openOptionalPrometheus(ctx, s)
	if err != nil {
		return nil, err
	}

	if source == nil {
		cluster, err := o.kubernetes.listCluster(ctx, nil)
		if errors.Is(err, errNoKubeconfig) {
			return nil, fmt.Errorf("%w: nodes and pods are read from the Kubernetes API, or from kube-state-metrics in Prometheus (--prometheus)", err)
		}
		if err != nil {
			return nil, err
		}

		report.sources = sources{workloads: o.kubernetes.serverName(), nodes: o.kubernetes.serverName()}
		report.Allocation, err = allocate(o.prices, cluster, func(string, string) (cost.Amounts, bool) { return cost.Amounts{}, false })
		return report, err
	}

	progress := newProgress(s.Err, "listing nodes and pods", source.Stats)
	defer progress.stop()

	state := newClusterState(o.kubernetes, nil, source, o.prometheus.serverName(), func(text string) { fmt.Fprintln(progress, text) })
	cluster, err := state.cluster(ctx, o.prices.LabelKeys())
	if err != nil {
		return nil, err
	}

	progress.setPhase("reading the usage of pods")
	end := report.now.Truncate(time.Minute)
	use, err := profile.ReadPodUsage(ctx, source.Capabilities().Usage, nil, end.Add(-o.windowLength), end)
	if err != nil {
		return nil, err
	}

	report.withUsage = true
	report.sources = state.reportSources()
	report.Allocation, err = allocate(o.prices, cluster, use.Mean)

	return report, err
}

// selectNamespaces reduces the report to some namespaces, each of which must have a pod; none selects all.
func (r *costReport) selectNamespaces(names []string) error {
	if len(names) == 0 {
		return nil
	}

	known := make([]string, 0, len(r.Namespaces))
	for _, n := range r.Namespaces {
		known = append(known, n.Namespace)
	}

	for _, name := range names {
		if !slices.Contains(known, name) {
			return &exitError{code: exitNoResult, err: fmt.Errorf("namespace %s has no pod on a node%s", name, didYouMean(name, known))}
		}
	}

	var sum cost.Bill
	r.Workloads, r.Namespaces, sum = r.InNamespaces(names)
	r.selected = &sum

	return nil
}

// openOptionalPrometheus opens the Prometheus server of the flags, or one discovered in the cluster. It returns nil
// if none is discovered, because costs by request do not require usage.
func (o *costOptions) openOptionalPrometheus(ctx context.Context, s Streams) (*prometheus.Source, error) {
	named := o.prometheus.address != "" || o.prometheus.service != ""
	err := o.prometheus.discoverServer(ctx, o.kubernetes, func(text string) { fmt.Fprintln(s.Err, text) })
	switch {
	case err == nil:
		return o.prometheus.open()
	case named || ctx.Err() != nil:
		return nil, err
	case !errors.Is(err, errNoKubeconfig):
		fmt.Fprintf(s.Err, "Warning: %v; usage is not counted\n", err)
	}

	return nil, nil
}

func allocate(book *cost.PriceBook, cluster workload.Cluster, use func(namespace, pod string) (cost.Amounts, bool)) (cost.Allocation, error) {
	tariff, err := cost.NewTariff(book, cluster.Nodes)
	if err != nil {
		return cost.Allocation{}, fmt.Errorf("failed to price the nodes: %w", err)
	}

	return cost.Allocate(tariff, cluster.CostPods(use)), nil
}
