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

	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/recommendation/pricebook"
	"crane.io/crane/internal/recommendation/requestpatch"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

const recommendLong = `Recommend computes the CPU and memory requests of each container from its measured usage.

The history is read from Prometheus (--prometheus; if not set, Prometheus is discovered in the cluster and reached through
the API server) or from CSV files (--from DIR), which need no cluster. Workloads are listed from the Kubernetes API of the
kubeconfig; without a kubeconfig they are read from the kube-state-metrics metrics in Prometheus. Finished days of history are
cached (--cache-dir, --no-cache). The command installs and changes nothing. crane doctor reports missing prerequisites.

Exit codes: 0 there is a recommendation; 1 the command failed; 2 the flags are invalid; 3 there is nothing to recommend; 4 a
request deviates from its recommendation by more than --fail-on allows.`

const recommendExample = `  crane recommend
  crane recommend --prometheus http://localhost:9090
  crane recommend --prometheus http://localhost:9090 -n shop -o json
  crane recommend --prometheus http://localhost:9090 --explain deploy/web
  crane recommend --prometheus http://localhost:9090 --only over --sort saving -o kustomize > kustomization.yaml
  crane recommend --prometheus http://localhost:9090 --fail-on over=30%,under=10%
  crane recommend --from ./traces --resource memory`

// recommendOptions are the flags of `crane recommend`.
type recommendOptions struct {
	prometheus *historyserver.Server
	kubernetes *clusteraccess.Access
	cache      profile.CacheConfig
	namespaces []string
	all        bool
	from       string
	resource   string
	history    string
	policyName string
	target     float64
	reaction   bool
	output     string
	evidence   bool

	priceBook string
	view      viewFlags
	explain   string
	failOn    []string

	// failRules are parsed from failOn.
	failRules []failRule

	// policies, prices and historyLength are derived from the flags.
	policies      rightsize.PolicySet
	prices        *cost.PriceBook
	historyLength time.Duration
}

func newRecommendCommand(s Streams) *cobra.Command {
	o := &recommendOptions{prometheus: historyserver.NewServer(), kubernetes: &clusteraccess.Access{}}
	cmd := &cobra.Command{
		Use:     "recommend",
		Aliases: []string{"rec"},
		Short:   "Recommend the requests of each container",
		Long:    recommendLong,
		Example: recommendExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.prometheus.Complete()
			if o.output == outputHTML && !cmd.Flags().Changed("evidence") {
				o.evidence = true // The page is self-contained.
			}

			if err := errors.Join(o.complete(), o.validate(cmd.Flags())); err != nil {
				return usageError(err)
			}

			return o.run(cmd.Context(), s)
		},
	}

	addRecommendVerbs(cmd, s)
	fs := cmd.Flags()
	addPrometheusFlags(fs, o.prometheus)
	addKubernetesFlags(fs, o.kubernetes)
	addCacheFlags(fs, &o.cache)
	fs.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "namespaces to analyze (default: all); may be repeated")
	fs.BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces; this is the default")
	fs.StringVar(&o.from, "from", "", "directory of CSV files (header ts,value) to read instead of Prometheus; each file is a workload")
	fs.StringVar(&o.resource, "resource", string(metrics.CPU), "resource in the CSV files: cpu (cores) or memory (bytes)")

	fs.StringVar(&o.history, "history", "", "length of the history, for example 7d (default: the window of the policy)")
	fs.StringVar(&o.policyName, "policy", rightsize.DefaultPolicy, "policy: "+strings.Join(rightsize.PolicyNames(), ", ")+", or a file in YAML or JSON (see docs/reference/sizing-policy.md)")
	fs.Float64Var(&o.target, "target", 0, targetFlagHelp+"; 0: the target of the policy")
	fs.BoolVar(&o.reaction, "reaction", false, "calibrate for workloads whose pods craned raises within the day (adoptionType Auto, in place), for calibrated policies")
	fs.BoolVar(&o.evidence, "evidence", false, "replay each recommendation, the current setting and the formulas of other tools over the history (json and yaml; the default for html)")
	fs.StringVar(&o.priceBook, "price-book", "", "YAML or JSON file with the prices of nodes (default: approximate prices; see docs/reference/cost.md)")
	fs.StringVarP(&o.output, "output", "o", outputTable, "output format: "+strings.Join(outputFormats(), ", "))
	o.view.addFlags(fs)
	fs.StringVar(&o.explain, "explain", "", "explain the recommendations of one workload, by name, kind/name or namespace/name")
	fs.StringSliceVar(&o.failOn, "fail-on", nil, "exit with 4 if a request exceeds (over=30%) or falls below (under=10%) the recommendation by more than a percentage, or is not set (missing)")

	return cmd
}

// complete derives the policies, the prices and the length of the history.
func (o *recommendOptions) complete() error {
	var err error
	if o.policies, err = loadPolicies(o.policyName); err != nil {
		return fmt.Errorf("--policy: %w", err)
	}

	if err := o.applyTarget(); err != nil {
		return err
	}

	if o.prices, err = pricebook.Load(o.priceBook); err != nil {
		return fmt.Errorf("--price-book: %w", err)
	}

	if o.history != "" {
		length, err := units.ParseDuration(o.history)
		if err != nil {
			return fmt.Errorf("--history: %w", err)
		}

		// The window of the policy is whole days. A history shorter than its minimum lowers that minimum.
		const day = 24 * time.Hour
		const longest = 366
		if length <= 0 || length > longest*day {
			return fmt.Errorf("--history %s: must be above 0 and at most %dd", o.history, longest)
		}

		window := (length + day - 1) / day * day
		o.policies.RequestedHistory = length
		err = o.policies.Each(func(p *rightsize.Policy) error {
			p.CPU.Window = window
			p.Memory.Window = window
			p.Memory.OOM.Window = min(p.Memory.OOM.Window, window)
			p.MinHistory = min(p.MinHistory, length)

			return p.Validate()
		})
		if err != nil {
			return fmt.Errorf("--history %s: %w", o.history, err)
		}
	}

	o.historyLength = o.policies.Window()
	return nil
}

// applyTarget sets the target of the calibrated policies. It is an error if there is none for --target or --reaction.
func (o *recommendOptions) applyTarget() error {
	name := "--target"
	switch {
	case o.target != 0:
		if err := checkTarget(o.target); err != nil {
			return err
		}
	case o.reaction:
		name = "--reaction"
	default:
		return nil
	}

	// Policies with rules may have calibrated and other ones.
	found := false
	err := o.policies.Each(func(p *rightsize.Policy) error {
		if p.CPU.Method == rightsize.Calibrated {
			found = true
			if o.target != 0 {
				p.CPU.Target = units.Ratio(o.target)
			}
		}

		return nil
	})

	if err == nil && !found {
		err = fmt.Errorf("%s requires a policy with the method calibrated, for example --policy %s", name, rightsize.CalibratedPolicy)
	}

	return err
}

func (o *recommendOptions) validate(fs *pflag.FlagSet) error {
	errs := []error{o.validateOutput()}
	if o.resource != string(metrics.CPU) && o.resource != string(metrics.Memory) {
		errs = append(errs, fmt.Errorf("--resource %q: want %s or %s", o.resource, metrics.CPU, metrics.Memory))
	}

	if o.from == "" {
		if o.prometheus.Service != "" && fs.Changed("prometheus") {
			errs = append(errs, errors.New("--prometheus and --prometheus-service are mutually exclusive"))
		}
		if fs.Changed("resource") {
			errs = append(errs, errors.New("--resource applies to --from only: both resources are read from Prometheus"))
		}
	} else {
		for _, name := range []string{"prometheus", "prometheus-service", "cache-dir", "no-cache", "namespace", "kubeconfig", "context", "all-namespaces", "price-book", "group-by", "fail-on"} {
			if fs.Changed(name) {
				errs = append(errs, fmt.Errorf("--%s cannot be combined with --from", name))
			}
		}
	}

	if o.all && len(o.namespaces) > 0 {
		errs = append(errs, errors.New("--all-namespaces and --namespace are mutually exclusive"))
	}
	if slices.Contains(o.namespaces, "") {
		errs = append(errs, errors.New("--namespace must not be empty"))
	}

	return errors.Join(errs...)
}

// validateOutput checks the output flags and parses their rules and expressions.
func (o *recommendOptions) validateOutput() error {
	var errs []error
	if rendererFor(o.output) == nil {
		errs = append(errs, fmt.Errorf("--output %q: want one of %s", o.output, strings.Join(outputFormats(), ", ")))
	}
	if o.evidence && !slices.Contains([]string{outputJSON, outputYAML, outputHTML}, o.output) {
		errs = append(errs, errors.New("--evidence requires --output json, yaml or html"))
	}

	errs = append(errs, o.view.complete(o.output), o.validateExplain())
	var err error
	if o.failRules, err = parseFailRules(o.failOn); err != nil {
		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// collector returns the collector of the recommendations that the flags select.
func (o *recommendOptions) collector(s Streams) *sizereport.Collector {
	out := &sizereport.Collector{
		Prometheus:      o.prometheus,
		Cache:           o.cache,
		From:            o.from,
		Resource:        o.resource,
		Kubernetes:      o.kubernetes,
		Namespaces:      o.namespaces,
		SelectWorkloads: o.selectWorkloads,
		Policies:        o.policies,
		HistoryLength:   o.historyLength,
		Prices:          o.prices,
		Reaction:        o.reaction,
		ForPatches:      requestpatch.IsFormat(o.output),
		NeedsRequests:   o.needsRequests(),
		WithReplays:     o.evidence || o.explain != "",
		Output:          s.Err,

		NeedsAllNamespaces: len(o.failRules) > 0,
	}

	if requestpatch.IsFormat(o.output) {
		out.ReadTemplates = requestpatch.ReadCluster(o.output)
	}

	return out
}

// needsRequests reports whether the flags compare with the current requests.
func (o *recommendOptions) needsRequests() bool {
	return len(o.failRules) > 0 || slices.ContainsFunc(o.view.only, func(only string) bool { return only != onlyLearning })
}

func (o *recommendOptions) run(ctx context.Context, s Streams) error {
	found, err := o.collector(s).Collect(ctx)
	if err != nil {
		return err
	}

	report := o.view.apply(found)
	render := rendererFor(o.output)
	if o.explain != "" && o.output == outputTable {
		render = renderExplain
	}

	if err := render(s, report); err != nil {
		return fmt.Errorf("writing the recommendations: %w", err)
	}

	if !report.hasNumbers() {
		return &exitError{code: exitNoResult, err: errors.New(report.emptyMessage())}
	}

	return report.failOn(s.Err, o.failRules)
}
