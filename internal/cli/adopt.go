// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/adoptionpreview"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/component/shellquote"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/workloadname"
	"crane.io/crane/internal/metrics/progressline"
)

const adoptLong = `Adopt applies recommendations to their workloads: it sets adoptionType to Auto, and craned applies the recommendations
(docs/reference/adoption.md).

With --dry-run nothing is written. The command prints the requests that craned would send next, with their reasons: computed by
the same code from the same pods, budgets, autoscalers and OOM records. The flags --adoption-... are those of craned; values that
are not set are read from craned's Deployment if possible. CPU throttling in Prometheus is not considered.

NAME is the name of a workload, as in checkout or deployment/checkout, or the name of a Recommendation. For a workload, its
recommendations of requests and of replicas are selected. Without NAME, --dry-run covers the whole namespace.

Exit codes: 0 success; 1 the command failed; 2 the flags are invalid; 3 the Recommendation does not exist.`

const adoptExample = `  crane adopt -n shop --dry-run
  crane adopt checkout -n shop --dry-run -o yaml
  crane adopt checkout -n shop --yes`

// adoptOptions are the flags of `crane adopt`.
type adoptOptions struct {
	kubernetes clusteraccess.Access
	namespace  string
	all        bool
	dryRun     bool
	yes        bool
	output     string
	// cranedNamespace is the namespace of craned.
	cranedNamespace string
	adoption        targetsnapshot.Options
}

func newAdoptCommand(s Streams) *cobra.Command {
	o := &adoptOptions{adoption: targetsnapshot.NewOptions()}
	cmd := &cobra.Command{
		Use:     "adopt [NAME...]",
		Short:   "Preview the adoption of recommendations, or start it",
		Long:    adoptLong,
		Example: adoptExample,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := o.validate(names); err != nil {
				return usageError(err)
			}

			return o.run(cmd.Context(), s, cmd.Flags(), names)
		},
	}

	fs := cmd.Flags()
	addKubernetesFlags(fs, &o.kubernetes)
	fs.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the recommendations (default: that of the kubeconfig's context)")
	fs.BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces; requires --dry-run")
	fs.BoolVar(&o.dryRun, "dry-run", false, "print the requests that craned would send and write nothing")
	fs.BoolVar(&o.yes, "yes", false, "set adoptionType of these recommendations to Auto")
	fs.StringVarP(&o.output, "output", "o", outputTable, "format of --dry-run: table, json or yaml")
	fs.StringVar(&o.cranedNamespace, "craned-namespace", "crane-system", "namespace of craned's Deployment and of its OOM record")
	o.adoption.AddFlags(fs)

	return cmd
}

func (o *adoptOptions) validate(names []string) error {
	switch {
	case o.dryRun == o.yes:
		return errors.New("want either --dry-run to preview the adoption or --yes to start it")
	case o.yes && len(names) == 0:
		return errors.New("--yes requires the names of recommendations")
	case o.all && (o.namespace != "" || len(names) > 0 || o.yes):
		return errors.New("--all-namespaces cannot be combined with --namespace, --yes or names")
	case !slices.Contains([]string{outputTable, outputJSON, outputYAML}, o.output):
		return fmt.Errorf("--output %q: want %s, %s or %s", o.output, outputTable, outputJSON, outputYAML)
	}

	_, err := o.adoption.Settings()
	return err
}

func (o *adoptOptions) run(ctx context.Context, s Streams, flags *pflag.FlagSet, names []string) error {
	c, err := o.kubernetes.ObjectClient()
	if err != nil {
		return err
	}

	if o.namespace == "" && !o.all {
		if o.namespace, err = o.kubernetes.DefaultNamespace(); err != nil {
			return err
		}
	}

	progress := progressline.New(s.Err, "listing recommendations", nil)
	defer progress.Stop()

	s.Err = progress
	recommendations, all, err := o.selectRecommendations(ctx, c, names)
	if err != nil {
		return err
	}

	// Starting an adoption needs no preview.
	if o.yes {
		progress.Stop()
		return setAuto(ctx, s.Out, c, recommendations)
	}

	progress.SetPhase("comparing with the running pods")
	reader := adoptionpreview.Reader{
		Client:          c,
		CranedNamespace: o.cranedNamespace,
		Adoption:        o.adoption,
		Flags:           flags,
		Notes:           s.Err,
	}

	previews, err := reader.Preview(ctx, recommendations, all)
	progress.Stop()

	if err != nil {
		return err
	}

	return writePreviews(s.Out, o.output, previews)
}

// selectRecommendations returns the selected Recommendations, sorted by name, and all Recommendations of the
// namespace.
func (o *adoptOptions) selectRecommendations(ctx context.Context, c client.Client, names []string) (selected, all []analysisv1alpha1.Recommendation, err error) {
	var list analysisv1alpha1.RecommendationList
	if err := c.List(ctx, &list, client.InNamespace(o.namespace)); err != nil {
		return nil, nil, fmt.Errorf("listing recommendations: %w", err)
	}

	slices.SortFunc(list.Items, func(a, b analysisv1alpha1.Recommendation) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})

	if len(names) == 0 {
		for i := range list.Items { // Skip the types that are not adopted.
			if targetsnapshot.StateAnnotations()[list.Items[i].Spec.Type] != "" {
				selected = append(selected, list.Items[i])
			}
		}
	}

	for _, name := range names {
		named, err := recommendationsNamed(list.Items, name)
		if err != nil {
			if missing := workloadname.MissingNamespace(ctx, c, o.namespace); missing != nil {
				return nil, nil, &exitError{code: exitNoResult, err: missing}
			}

			return nil, nil, &exitError{code: exitNoResult, err: fmt.Errorf("namespace %s: %w", o.namespace, err)}
		}

		selected = append(selected, named...)
	}

	if len(selected) == 0 {
		where := "any namespace"
		if !o.all {
			where = "namespace " + o.namespace
		}

		return nil, nil, &exitError{code: exitNoResult, err: fmt.Errorf("no recommendation of requests or replicas in %s", where)}
	}

	return selected, list.Items, nil
}

// setAuto sets adoptionType to Auto. Each patch requires the resource version that was read.
func setAuto(ctx context.Context, out io.Writer, c client.Client, selected []analysisv1alpha1.Recommendation) error {
	for i := range selected {
		rec := &selected[i]
		before := rec.DeepCopy()

		if targetsnapshot.StateAnnotations()[rec.Spec.Type] == "" {
			return fmt.Errorf("recommendation %s/%s: type %s cannot be adopted", rec.Namespace, rec.Name, rec.Spec.Type)
		}

		result := "is already Auto"
		// The command that restores the type before is printed, as it is not recorded elsewhere.
		if rec.Spec.AdoptionType != analysisv1alpha1.AdoptionTypeAuto {
			rec.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeAuto
			patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
			if err := c.Patch(ctx, rec, patch, client.FieldOwner("crane")); err != nil {
				return fmt.Errorf("recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
			}

			restore := shellquote.Command([]string{"kubectl", "patch", "recommendation", "-n", rec.Namespace, "--type", "merge", "-p", fmt.Sprintf(`{"spec":{"adoptionType":%q}}`, before.Spec.AdoptionType)}, rec.Name)
			result = fmt.Sprintf("set to Auto, previously %s; %s restores it", before.Spec.AdoptionType, restore)
		}

		if _, err := termtext.Fprintf(out, "recommendation %s/%s %s\n", rec.Namespace, rec.Name, result); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
	}

	return nil
}
