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
	"github.com/spf13/pflag"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/recommendation/pricebook"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

const recommendLong = `Recommend says what each container should request, from what it really used.

The history is read from Prometheus (--prometheus; without it one is looked for in the cluster and reached through the
API server), or from CSV files (--from DIR) without any cluster. The workloads are listed from the Kubernetes API that the
kubeconfig leads to; without a kubeconfig they are taken from kube-state-metrics' metrics in the same Prometheus. Finished
days are kept for the next run (--cache-dir, --no-cache). Nothing is installed and nothing is changed; crane doctor says
what is missing.

Exit codes: 0 there is a recommendation; 1 the command failed; 2 the flags are wrong; 3 there is nothing to recommend; 4 a
request is further from its recommendation than --fail-on allows.`

const recommendExample = `  crane recommend
  crane recommend --prometheus http://localhost:9090
  crane recommend --prometheus http://localhost:9090 -n shop -o json
  crane recommend --prometheus http://localhost:9090 --explain deploy/web
  crane recommend --prometheus http://localhost:9090 --only over --sort saving -o kustomize > kustomization.yaml
  crane recommend --prometheus http://localhost:9090 --fail-on over=30%,under=10%
  crane recommend --from ./traces --resource memory`

// recommendOptions are the flags of `crane recommend`.
type recommendOptions struct {
	prometheus *prometheusFlags
	kubernetes *kubernetesFlags
	cache      cacheFlags
	namespaces []string
	all        bool
	from       string
	resource   string
	history    string
	policyName string
	output     string
	evidence   bool

	priceBook string
	view      viewFlags
	explain   string
	failOn    []string

	// failRules follow from failOn.
	failRules []failRule

	// policies, book and length follow from the flags.
	policies rightsize.PolicySet
	book     *cost.PriceBook
	length   time.Duration
}

func newRecommendCommand(s Streams) *cobra.Command {
	o := &recommendOptions{prometheus: newPrometheusFlags(), kubernetes: &kubernetesFlags{}}
	cmd := &cobra.Command{
		Use:     "recommend",
		Aliases: []string{"rec"},
		Short:   "Say what each container should request",
		Long:    recommendLong,
		Example: recommendExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.prometheus.complete()
			if o.output == outputHTML && !cmd.Flags().Changed("evidence") {
				o.evidence = true // A page is read where nobody can ask again.
			}
			if err := errors.Join(o.complete(), o.validate(cmd.Flags())); err != nil {
				return usageError(err)
			}
			return o.run(cmd.Context(), s)
		},
	}
	fs := cmd.Flags()
	o.prometheus.addFlags(fs)
	o.kubernetes.addFlags(fs)
	o.cache.addFlags(fs)
	fs.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "namespaces to look at (default: all); may be repeated")
	fs.BoolVarP(&o.all, "all-namespaces", "A", false, "look at all namespaces; the default, for kubectl's habits")
	fs.StringVar(&o.from, "from", "", "directory of CSV files (header ts,value) to read instead of Prometheus; each file is a workload")
	fs.StringVar(&o.resource, "resource", string(metrics.CPU), "what the CSV files measure: cpu (cores) or memory (bytes)")
	fs.StringVar(&o.history, "history", "", "how far back to look, for example 7d (default: the window of the policy)")
	fs.StringVar(&o.policyName, "policy", rightsize.DefaultPolicy, "policy: "+strings.Join(rightsize.PolicyNames(), ", ")+", or a file in YAML or JSON (see docs/reference/sizing-policy.md)")
	fs.BoolVar(&o.evidence, "evidence", false, "replay each recommendation over the history, beside today's setting and other tools' formulas (json, yaml; html has it unless --evidence=false)")
	fs.StringVar(&o.priceBook, "price-book", "", "file in YAML or JSON that says what nodes cost (default: rough prices; see docs/reference/cost.md)")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: "+strings.Join(outputNames(), ", "))
	o.view.addFlags(fs)
	fs.StringVar(&o.explain, "explain", "", "all that is behind the numbers of one workload, by name, kind/name or namespace/name")
	fs.StringSliceVar(&o.failOn, "fail-on", nil, "exit with 4 where a request is that much above or below the recommendation or is not there: over=30%, under=10%, missing")
	return cmd
}

// complete derives the policy and the length of history.
func (o *recommendOptions) complete() error {
	var err error
	if o.policies, err = loadPolicies(o.policyName); err != nil {
		return fmt.Errorf("--policy: %w", err)
	}
	if o.book, err = pricebook.Load(o.priceBook); err != nil {
		return fmt.Errorf("--price-book: %w", err)
	}
	if o.history != "" {
		length, err := series.ParseDuration(o.history)
		if err != nil {
			return fmt.Errorf("--history: %w", err)
		}
		// The policy counts in whole days; whoever asks for fewer days than it wants to have seen gets a number anyway.
		const day, longest = 24 * time.Hour, 366
		if length <= 0 || length > longest*day {
			return fmt.Errorf("--history %s: want more than nothing and at most %dd", o.history, longest)
		}
		window := (length + day - 1) / day * day
		o.policies.RequestedHistory = length
		err = o.policies.Each(func(p *rightsize.Policy) error {
			p.CPU.Window, p.Memory.Window = window, window
			p.Memory.OOM.Window = min(p.Memory.OOM.Window, window)
			p.MinHistory = min(p.MinHistory, length)
			return p.Validate()
		})
		if err != nil {
			return fmt.Errorf("--history %s: %w", o.history, err)
		}
	}
	o.length = o.policies.Window()
	return nil
}

func (o *recommendOptions) validate(fs *pflag.FlagSet) error {
	errs := []error{o.validateOutput()}
	if o.resource != string(metrics.CPU) && o.resource != string(metrics.Memory) {
		errs = append(errs, fmt.Errorf("--resource %q: want %s or %s", o.resource, metrics.CPU, metrics.Memory))
	}
	if o.from == "" {
		if o.prometheus.service != "" && fs.Changed("prometheus") {
			errs = append(errs, errors.New("--prometheus contradicts --prometheus-service"))
		}
		if fs.Changed("resource") {
			errs = append(errs, errors.New("--resource is for --from: from Prometheus both are read"))
		}
	} else {
		for _, name := range []string{"prometheus", "prometheus-service", "cache-dir", "no-cache", "namespace", "kubeconfig", "context", "all-namespaces", "price-book", "group-by", "fail-on"} {
			if fs.Changed(name) {
				errs = append(errs, fmt.Errorf("--%s has no meaning with --from", name))
			}
		}
	}
	if o.all && len(o.namespaces) > 0 {
		errs = append(errs, errors.New("--all-namespaces contradicts --namespace"))
	}
	if slices.Contains(o.namespaces, "") {
		errs = append(errs, errors.New("--namespace: a namespace has a name"))
	}
	return errors.Join(errs...)
}

// validateOutput checks what is to be shown, and reads the rules and expressions of it.
func (o *recommendOptions) validateOutput() error {
	var errs []error
	if rendererOf(o.output) == nil {
		errs = append(errs, fmt.Errorf("--output %q: want one of %s", o.output, strings.Join(outputNames(), ", ")))
	}
	if o.evidence && !slices.Contains([]string{outputJSON, outputYAML, outputHTML}, o.output) {
		errs = append(errs, errors.New("--evidence is for --output json, yaml and html"))
	}
	errs = append(errs, o.view.complete(o.output), o.validateExplain())
	var err error
	if o.failRules, err = parseFailRules(o.failOn); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (o *recommendOptions) run(ctx context.Context, s Streams) error {
	gather := o.fromPrometheus
	if o.from != "" {
		gather = o.fromFiles
	}
	report, err := gather(ctx, s)
	if err != nil {
		return err
	}
	o.view.apply(report)
	render := rendererOf(o.output)
	if o.explain != "" && o.output == outputTable {
		render = renderExplain
	}
	if err := render(s, report); err != nil {
		return fmt.Errorf("writing the recommendations: %w", err)
	}
	if !report.hasNumbers() {
		return &exitError{code: exitNothing, err: errors.New(report.whyNothing())}
	}
	return report.failOn(s.Err, o.failRules)
}
