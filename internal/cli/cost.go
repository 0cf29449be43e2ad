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

const costLong = `Cost deals the price of the nodes out to the workloads that run on them: by what they request, by what they use, and by
the larger of the two, with what nobody asked for apart. For each of the three, the workloads and what is idle are the
price of the nodes.

Nodes and pods are listed from the Kubernetes API that the kubeconfig leads to, or where there is none from
kube-state-metrics in Prometheus. What pods use is the mean over the last hour (--window) in Prometheus; where none is
given and none found in the cluster only requests are counted. Nothing is changed.

Exit codes: 0 nodes are priced; 1 the command failed; 2 the flags are wrong; 3 there is no node to price.`

const costExample = `  crane cost --prometheus http://localhost:9090
  crane cost --by namespace --price-book prices.yaml
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
	window     string
	priceBook  string
	output     string

	// book and length follow from the flags.
	book   *cost.PriceBook
	length time.Duration
}

// costReport is what a run of `crane cost` found out.
type costReport struct {
	by     string
	now    time.Time
	window time.Duration
	// windowText is the window as the user wrote it.
	windowText string
	book       *cost.PriceBook
	// withUse tells that use was read at all.
	withUse bool
	sources sources
	cost.Allocation
}

func newCostCommand(s Streams) *cobra.Command {
	o := &costOptions{prometheus: newPrometheusFlags(), kubernetes: &kubernetesFlags{}}
	cmd := &cobra.Command{
		Use:     "cost",
		Short:   "Say what workloads cost, and what is idle",
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
	fs.StringVar(&o.by, "by", byWorkload, "a line for each workload, namespace or node")
	fs.StringVar(&o.window, "window", "1h", "how far back the mean use reaches, for example 1d")
	fs.StringVar(&o.priceBook, "price-book", "", "file in YAML or JSON that says what nodes cost (default: rough prices; see docs/reference/cost.md)")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")
	return cmd
}

// complete derives the prices and the window, and checks the flags.
func (o *costOptions) complete() error {
	var errs []error
	if !slices.Contains([]string{byWorkload, byNamespace, byNode}, o.by) {
		errs = append(errs, fmt.Errorf("--by %q: want %s, %s or %s", o.by, byWorkload, byNamespace, byNode))
	}
	errs = append(errs, checkTableOrJSON(o.output))
	var err error
	if o.book, err = pricebook.Load(o.priceBook); err != nil {
		errs = append(errs, fmt.Errorf("--price-book: %w", err))
	}
	o.length, err = series.ParseDuration(o.window)
	const shortest = 5 * time.Minute // A rate needs a few scrapes.
	switch {
	case err != nil:
		errs = append(errs, fmt.Errorf("--window: %w", err))
	case o.length < shortest:
		errs = append(errs, fmt.Errorf("--window %s: want at least %s", o.window, shortest))
	}
	return errors.Join(errs...)
}

func (o *costOptions) run(ctx context.Context, s Streams) error {
	report, err := o.gather(ctx, s)
	if err != nil {
		return err
	}
	render := renderCostTable
	if o.output == outputJSON {
		render = renderCostJSON
	}
	if err := render(s.Out, report); err != nil {
		return fmt.Errorf("writing the costs: %w", err)
	}
	if len(report.Nodes) == 0 {
		return &exitError{code: exitNothing, err: errors.New("there is no node to price")}
	}
	return nil
}

// gather reads the cluster and what its pods use, and deals the cost out.
func (o *costOptions) gather(ctx context.Context, s Streams) (*costReport, error) {
	report := &costReport{by: o.by, now: time.Now(), window: o.length, windowText: o.window, book: o.book}
	source, err := o.prometheusOrNone(ctx, s)
	if err != nil {
		return nil, err
	}
	if source == nil {
		cluster, err := o.kubernetes.cluster(ctx, nil)
		if errors.Is(err, errNoKubeconfig) {
			return nil, fmt.Errorf("%w: the nodes and what runs on them are read from the Kubernetes API, or without one from kube-state-metrics in Prometheus (--prometheus)", err)
		}
		if err != nil {
			return nil, err
		}
		report.sources = sources{workloads: o.kubernetes.server(), nodes: o.kubernetes.server()}
		report.Allocation, err = allocate(o.book, cluster, func(string, string) (cost.Amounts, bool) { return cost.Amounts{}, false })
		return report, err
	}
	progress := newProgress(s.Err, source.Stats)
	defer progress.stop()
	progress.phase("listing nodes and pods")
	around := newSurroundings(o.kubernetes, nil, source, o.prometheus.server(), func(text string) { progress.note(s.Err, text) })
	cluster, err := around.cluster(ctx, o.book.LabelKeys())
	if err != nil {
		return nil, err
	}
	progress.phase("reading what pods use")
	end := report.now.Truncate(time.Minute)
	use, err := profile.ReadPodUsage(ctx, source.Capabilities().Usage, nil, end.Add(-o.length), end)
	if err != nil {
		return nil, err
	}
	report.withUse, report.sources = true, around.sources()
	report.Allocation, err = allocate(o.book, cluster, use.Mean)
	return report, err
}

// prometheusOrNone is the one that the user named, which has to answer, or one that is found in the cluster; nil where
// none is found, as costs by request need none.
func (o *costOptions) prometheusOrNone(ctx context.Context, s Streams) (*prometheus.Source, error) {
	named := o.prometheus.address != "" || o.prometheus.service != ""
	err := o.prometheus.locate(ctx, o.kubernetes, func(text string) { fmt.Fprintln(s.Err, text) })
	switch {
	case err == nil:
		return o.prometheus.open()
	case named || ctx.Err() != nil:
		return nil, err
	case !errors.Is(err, errNoKubeconfig):
		fmt.Fprintf(s.Err, "Warning: %v; use is not counted\n", err)
	}
	return nil, nil
}

func allocate(book *cost.PriceBook, cluster workload.Cluster, use func(namespace, pod string) (cost.Amounts, bool)) (cost.Allocation, error) {
	tariff, err := cost.NewTariff(book, cluster.Nodes)
	if err != nil {
		return cost.Allocation{}, fmt.Errorf("pricing the nodes: %w", err)
	}
	return cost.Allocate(tariff, cluster.CostPods(use)), nil
}
