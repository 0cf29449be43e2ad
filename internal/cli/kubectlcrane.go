// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/kube/clusteraccess"
)

// The verbs of gocrane's kubectl-crane are hidden: they work for those who come over, and each names the command of Crane.

// kubectlCraneFlags are the flags that kubectl-crane's verbs share.
type kubectlCraneFlags struct {
	kubernetes      clusteraccess.Access
	namespace, name string
	// dryRun is the value of --dry-run; see checksOnly.
	dryRun string
}

func (f *kubectlCraneFlags) addFlags(fs *pflag.FlagSet, namespaces string) {
	addKubernetesFlags(fs, &f.kubernetes)
	fs.StringVarP(&f.namespace, "namespace", "n", "", namespaces)
	fs.StringVar(&f.name, "name", "", "name of the object")
}

// addDryRun adds --dry-run, which kubectl-crane took with and without a value.
func (f *kubectlCraneFlags) addDryRun(fs *pflag.FlagSet) {
	fs.StringVar(&f.dryRun, "dry-run", "", "write nothing")
	fs.Lookup("dry-run").NoOptDefVal = "All"
}

// checksOnly reports whether writes are checked and not stored.
func (f *kubectlCraneFlags) checksOnly() bool { return f.dryRun != "" && f.dryRun != "false" }

// checkName returns an error where --name of a Recommendation is missing.
func (f *kubectlCraneFlags) checkName() error {
	if f.name == "" {
		return usageError(errors.New("--name: want the name of a Recommendation"))
	}

	return nil
}

// writer returns a client whose writes are checked by the server and not stored with --dry-run.
func (f *kubectlCraneFlags) writer() (client.Client, error) {
	c, err := f.kubernetes.ObjectClient()
	if err == nil && f.checksOnly() {
		c = client.NewDryRunClient(c)
	}

	return c, err
}

// verb returns a hidden command for a verb of kubectl-crane.
func verb(use, short string, run func(context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use:    use,
		Short:  short + " (gocrane's kubectl-crane)",
		Args:   noArgs,
		Hidden: true,
		RunE:   func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) },
	}
}

// addRecommendVerbs adds `recommend list`, `adopt` and `trigger`.
func addRecommendVerbs(cmd *cobra.Command, s Streams) {
	cmd.AddCommand(newRecommendListVerb(s), newRecommendAdoptVerb(s), newRecommendTriggerVerb(s))
}

func newRecommendListVerb(s Streams) *cobra.Command {
	f := &kubectlCraneFlags{}
	var kind, targetKind string
	cmd := verb("list", "List Recommendations; kubectl get recommendations shows more", func(ctx context.Context) error {
		return listRecommendations(ctx, s, f, func(r *analysisv1alpha1.Recommendation) bool {
			return (f.name == "" || r.Name == f.name) && (kind == "" || strings.EqualFold(string(r.Spec.Type), kind)) && (targetKind == "" || strings.EqualFold(r.Spec.TargetRef.Kind, targetKind))
		})
	})

	f.addFlags(cmd.Flags(), "namespace (default: all)")
	cmd.Flags().StringVar(&kind, "type", "", "only this type, for example Resource")
	cmd.Flags().StringVar(&targetKind, "targetKind", "", "only targets of this kind, for example Deployment")

	return cmd
}

// listRecommendations prints the Recommendations that a function selects.
func listRecommendations(ctx context.Context, s Streams, f *kubectlCraneFlags, selects func(*analysisv1alpha1.Recommendation) bool) error {
	c, err := f.kubernetes.ObjectClient()
	if err != nil {
		return err
	}

	var list analysisv1alpha1.RecommendationList
	if err := c.List(ctx, &list, client.InNamespace(f.namespace)); err != nil {
		return fmt.Errorf("listing recommendations: %w", err)
	}

	t := texttable.New("NAME", "NAMESPACE", "TYPE", "TARGET", "CHANGE", "UPDATED")
	for i := range list.Items {
		if r := &list.Items[i]; selects(r) {
			updated := emptyCell
			if r.Status.LastUpdateTime != nil {
				updated = r.Status.LastUpdateTime.UTC().Format(time.RFC3339)
			}

			t.AppendRow(table.Row{r.Name, r.Namespace, r.Spec.Type, r.Spec.TargetRef.Kind + "/" + r.Spec.TargetRef.Name, cmp.Or(r.Status.Change, emptyCell), updated})
		}
	}

	return printLine(s, termtext.Trusted(t.Render()))
}

func printLine(s Streams, line any) error {
	if _, err := termtext.Fprintln(s.Out, line); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}

	return nil
}

func newRecommendAdoptVerb(s Streams) *cobra.Command {
	f := &kubectlCraneFlags{}
	var cmd *cobra.Command
	cmd = verb("adopt", "Adopt a Recommendation, as crane adopt NAME", func(ctx context.Context) error {
		if err := f.checkName(); err != nil {
			return err
		}

		// crane adopt has the defaults of its own flags.
		adopt := newAdoptCommand(s)

		args := []string{f.name, "--yes"}
		if f.checksOnly() {
			args[1] = "--dry-run"
		}

		cmd.Flags().Visit(func(set *pflag.Flag) {
			if set.Name != "name" && set.Name != "dry-run" {
				args = append(args, "--"+set.Name+"="+set.Value.String())
			}
		})

		adopt.SetArgs(args)
		adopt.SilenceErrors = true
		adopt.SilenceUsage = true

		return adopt.ExecuteContext(ctx)
	})

	cmd.Long = "kubectl-crane patched the template of the target. Crane sets adoptionType to Auto, and craned applies the recommendation step by step."
	f.addFlags(cmd.Flags(), "namespace of the Recommendation (default: that of the kubeconfig's context)")
	f.addDryRun(cmd.Flags())

	return cmd
}

func newRecommendTriggerVerb(s Streams) *cobra.Command {
	f := &kubectlCraneFlags{}
	cmd := verb("trigger", "Evaluate a Recommendation again", func(ctx context.Context) error {
		if err := f.checkName(); err != nil {
			return err
		}

		c, err := f.writer()
		if err == nil && f.namespace == "" {
			f.namespace, err = f.kubernetes.DefaultNamespace()
		}

		if err != nil {
			return err
		}

		rec := &analysisv1alpha1.Recommendation{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: f.name}, rec); err != nil {
			return fmt.Errorf("recommendation %s/%s: %w", f.namespace, f.name, err)
		}

		before := rec.DeepCopy()
		if rec.Annotations == nil {
			rec.Annotations = map[string]string{}
		}

		rec.Annotations[analysisv1alpha1.AnnotationRunNumber] = "0" // below that of its rule
		if err := c.Patch(ctx, rec, client.MergeFrom(before), client.FieldOwner("crane")); err != nil {
			return fmt.Errorf("recommendation %s/%s: %w", f.namespace, f.name, err)
		}

		return printLine(s, fmt.Sprintf("recommendation %s/%s: craned evaluates it again", f.namespace, f.name))
	})

	f.addFlags(cmd.Flags(), "namespace of the Recommendation (default: that of the kubeconfig's context)")
	f.addDryRun(cmd.Flags())
	return cmd
}

// newRecommendationRuleCommand returns `recommendation-rule`.
func newRecommendationRuleCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "recommendation-rule",
		Aliases: []string{"rr"},
		Short:   "List and create RecommendationRules (gocrane's kubectl-crane)",
		Args:    noArgs,
		Hidden:  true,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	cmd.AddCommand(newRuleListVerb(s), newRuleCreateVerb(s))
	return cmd
}

func newRuleListVerb(s Streams) *cobra.Command {
	f := &kubectlCraneFlags{}
	var recommender string
	cmd := verb("list", "List RecommendationRules", func(ctx context.Context) error {
		c, err := f.kubernetes.ObjectClient()
		if err != nil {
			return err
		}

		var list analysisv1alpha1.RecommendationRuleList
		if err := c.List(ctx, &list); err != nil {
			return fmt.Errorf("listing recommendation rules: %w", err)
		}

		t := texttable.New("NAME", "RECOMMENDER", "TARGET", "NAMESPACE", "RUN INTERVAL", "CREATED")
		for i := range list.Items {
			rule := &list.Items[i]
			var recommenders, targets []string
			for _, r := range rule.Spec.Recommenders {
				recommenders = append(recommenders, r.Name)
			}

			for _, r := range rule.Spec.ResourceSelectors {
				targets = append(targets, r.Kind)
			}

			// A rule of all namespaces has no list of names.
			namespaces := strings.Join(rule.Spec.NamespaceSelector.MatchNames, ",")
			if rule.Spec.NamespaceSelector.Any {
				namespaces = "Any"
			}

			if f.name != "" && rule.Name != f.name || recommender != "" && !slices.ContainsFunc(recommenders, func(r string) bool { return strings.EqualFold(r, recommender) }) {
				continue
			}

			t.AppendRow(table.Row{rule.Name, strings.Join(recommenders, ","), strings.Join(targets, ","), namespaces, rule.Spec.RunInterval, rule.CreationTimestamp.UTC().Format(time.RFC3339)})
		}

		return printLine(s, termtext.Trusted(t.Render()))
	})

	f.addFlags(cmd.Flags(), "ignored: rules belong to no namespace")
	cmd.Flags().StringVar(&recommender, "recommender", "", "only rules with this recommender")
	return cmd
}

func newRuleCreateVerb(s Streams) *cobra.Command {
	f := &kubectlCraneFlags{}
	var recommenders, target, interval string
	cmd := verb("create", "Create a RecommendationRule", func(ctx context.Context) error {
		rule, err := newRule(f, recommenders, target, interval, time.Now())
		if err != nil {
			return usageError(err)
		}

		c, err := f.writer()
		if err != nil {
			return err
		}

		if err := c.Create(ctx, rule, client.FieldOwner("crane")); err != nil {
			return fmt.Errorf("recommendation rule %s: %w", rule.Name, err)
		}

		return printLine(s, fmt.Sprintf("recommendation rule %s created", rule.Name))
	})

	f.addFlags(cmd.Flags(), "namespaces, separated by commas, or Any (default: Any)")
	f.addDryRun(cmd.Flags())
	fs := cmd.Flags()
	fs.StringVar(&recommenders, "recommender", "Resource", "recommenders, separated by commas")
	fs.StringVar(&target, "target", "", `selectors in JSON, such as '[{"kind":"Deployment","apiVersion":"apps/v1"}]'`)
	fs.StringVar(&interval, "run-interval", "", "interval of the evaluations, such as 4h")
	fs.StringVar(&interval, "runInterval", "", "as --run-interval")

	return cmd
}

// newRule returns the rule of `recommendation-rule create`. kubectl-crane's names had capitals, which the API server rejects.
func newRule(f *kubectlCraneFlags, recommenders, target, interval string, now time.Time) (*analysisv1alpha1.RecommendationRule, error) {
	rule := &analysisv1alpha1.RecommendationRule{}
	if err := json.Unmarshal([]byte(target), &rule.Spec.ResourceSelectors); err != nil || len(rule.Spec.ResourceSelectors) == 0 {
		return nil, fmt.Errorf(`--target %q: want a list of selectors in JSON, such as '[{"kind":"Deployment","apiVersion":"apps/v1"}]'`, target)
	}

	if _, err := time.ParseDuration(interval); err != nil {
		return nil, fmt.Errorf("--run-interval %q: %w", interval, err)
	}

	rule.Spec.RunInterval = interval
	name := []string{"recommendation"}
	if f.namespace == "" || strings.EqualFold(f.namespace, "Any") {
		rule.Spec.NamespaceSelector.Any = true
		name = append(name, "any")
	} else {
		rule.Spec.NamespaceSelector.MatchNames = strings.Split(f.namespace, ",")
	}

	name = append(name, rule.Spec.ResourceSelectors[0].Kind)
	for r := range strings.SplitSeq(recommenders, ",") {
		rule.Spec.Recommenders = append(rule.Spec.Recommenders, analysisv1alpha1.Recommender{Name: r})
		name = append(name, r)
	}

	// The default name describes the rule.
	rule.Name = strings.ToLower(strings.Join(append(name, interval, now.UTC().Format(time.DateOnly)), "-"))
	if f.name != "" {
		rule.Name = f.name
	}

	return rule, nil
}

// newViewRecommendCommand returns `view-recommend`.
func newViewRecommendCommand(s Streams) *cobra.Command {
	f := &kubectlCraneFlags{}
	var selector string
	cmd := verb("view-recommend", "List the Recommendations of a workload, as crane explain workload", func(ctx context.Context) error {
		var want corev1.ObjectReference
		if err := json.Unmarshal([]byte(selector), &want); err != nil || want.Name == "" {
			return usageError(fmt.Errorf(`--selector %q: want a target in JSON, such as '{"apiVersion":"apps/v1","kind":"Deployment","name":"web","namespace":"shop"}'`, selector))
		}

		if want.Namespace != "" {
			f.namespace = want.Namespace
		}

		return listRecommendations(ctx, s, f, func(r *analysisv1alpha1.Recommendation) bool {
			t := r.Spec.TargetRef
			return t.Name == want.Name && (want.Kind == "" || t.Kind == want.Kind) && (want.APIVersion == "" || t.APIVersion == want.APIVersion) && (want.Namespace == "" || r.Namespace == want.Namespace)
		})
	})

	f.addFlags(cmd.Flags(), "namespace (default: that of the selector, or all)")
	cmd.Flags().StringVar(&selector, "selector", "", "target in JSON")
	cmd.Flags().StringVar(&selector, "sourceSelector", "", "as --selector")

	return cmd
}
