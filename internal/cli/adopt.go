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
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
)

const adoptLong = `Adopt brings recommendations to their workloads: it sets adoptionType to Auto, and craned goes on from there (docs/reference/adoption.md).

With --dry-run nothing is written. It says which requests craned would send next, word by word, with their reasons: from the same
pods, budgets, autoscalers and records of OOM kills, decided by the same code. The flags --adoption-... are craned's; those that are
not given are taken from craned's Deployment, where it can be read. What Prometheus says of throttled CPU is not looked at.

NAME is that of a Recommendation. Without one --dry-run looks at all of the namespace.

Exit codes: 0 done; 1 it failed; 2 the flags are wrong; 3 there is no such Recommendation.`

const adoptExample = `  crane adopt -n shop --dry-run
  crane adopt checkout -n shop --dry-run -o yaml
  crane adopt checkout -n shop --yes`

// adoptOptions are the flags of `crane adopt`.
type adoptOptions struct {
	kubernetes kubernetesFlags
	namespace  string
	all        bool
	dryRun     bool
	yes        bool
	output     string
	// home is the namespace of craned.
	home     string
	adoption targetsnapshot.Options
}

func newAdoptCommand(s Streams) *cobra.Command {
	o := &adoptOptions{adoption: targetsnapshot.NewOptions()}
	cmd := &cobra.Command{
		Use:     "adopt [NAME...]",
		Short:   "Say what would be sent to adopt recommendations, or let craned adopt them",
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
	o.kubernetes.addFlags(fs)
	fs.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the recommendations (default: that of the kubeconfig's context)")
	fs.BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces; for --dry-run alone")
	fs.BoolVar(&o.dryRun, "dry-run", false, "write nothing, and say what would be sent")
	fs.BoolVar(&o.yes, "yes", false, "set adoptionType of these recommendations to Auto")
	fs.StringVarP(&o.output, "output", "o", outputTable, "format of --dry-run: table, json or yaml")
	fs.StringVar(&o.home, "craned-namespace", "crane-system", "namespace of craned: of its Deployment and its record of OOM kills")
	o.adoption.AddFlags(fs)
	return cmd
}

func (o *adoptOptions) validate(names []string) error {
	switch {
	case o.dryRun == o.yes:
		return errors.New("say either --dry-run, to see what would be sent, or --yes, to let craned adopt")
	case o.yes && len(names) == 0:
		return errors.New("--yes wants the names of recommendations")
	case o.all && (o.namespace != "" || len(names) > 0 || o.yes):
		return errors.New("--all-namespaces goes with none of --namespace, --yes and names")
	case !slices.Contains([]string{outputTable, outputJSON, outputYAML}, o.output):
		return fmt.Errorf("--output %q: want %s, %s or %s", o.output, outputTable, outputJSON, outputYAML)
	}
	_, err := o.adoption.Settings()
	return err
}

func (o *adoptOptions) run(ctx context.Context, s Streams, flags *pflag.FlagSet, names []string) error {
	config, err := o.kubernetes.config()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("building the scheme: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("API server %s: %w", config.Host, err)
	}
	if o.namespace == "" && !o.all {
		if o.namespace, err = o.kubernetes.defaultNamespace(); err != nil {
			return err
		}
	}
	recommendations, all, err := o.find(ctx, c, names)
	if err != nil {
		return err
	}
	if o.yes {
		return setAuto(ctx, s.Out, c, recommendations)
	}
	previews, err := o.preview(ctx, s, flags, c, recommendations, all)
	if err != nil {
		return err
	}
	return writePreviews(s.Out, o.output, previews)
}

// find returns the Recommendations that are meant, in the order of their names, and all of the namespace.
func (o *adoptOptions) find(ctx context.Context, c client.Client, names []string) (meant, all []analysisv1alpha1.Recommendation, err error) {
	var list analysisv1alpha1.RecommendationList
	if err := c.List(ctx, &list, client.InNamespace(o.namespace)); err != nil {
		return nil, nil, fmt.Errorf("listing recommendations: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b analysisv1alpha1.Recommendation) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	if len(names) == 0 {
		for i := range list.Items { // What says nothing to a workload by itself is not asked about.
			if targetsnapshot.StateAnnotations()[list.Items[i].Spec.Type] != "" {
				meant = append(meant, list.Items[i])
			}
		}
	}
	for _, name := range names {
		i := slices.IndexFunc(list.Items, func(r analysisv1alpha1.Recommendation) bool { return r.Name == name })
		if i < 0 {
			return nil, nil, &exitError{code: exitNothing, err: fmt.Errorf("there is no recommendation %s in namespace %s", name, o.namespace)}
		}
		meant = append(meant, list.Items[i])
	}
	if len(meant) == 0 {
		where := "any namespace"
		if !o.all {
			where = "namespace " + o.namespace
		}
		return nil, nil, &exitError{code: exitNothing, err: fmt.Errorf("there is no recommendation of requests or replicas in %s", where)}
	}
	return meant, list.Items, nil
}

// setAuto lets craned adopt. Each write names the version that was read.
func setAuto(ctx context.Context, out io.Writer, c client.Client, meant []analysisv1alpha1.Recommendation) error {
	for i := range meant {
		rec := &meant[i]
		before := rec.DeepCopy()
		if targetsnapshot.StateAnnotations()[rec.Spec.Type] == "" {
			return fmt.Errorf("recommendation %s/%s: type %s is not adopted", rec.Namespace, rec.Name, rec.Spec.Type)
		}
		said := "is Auto already"
		if rec.Spec.AdoptionType != analysisv1alpha1.AdoptionTypeAuto {
			rec.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeAuto
			patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
			if err := c.Patch(ctx, rec, patch, client.FieldOwner("crane")); err != nil {
				return fmt.Errorf("recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
			}
			said = fmt.Sprintf("is Auto, it was %s; kubectl patch recommendation %s -n %s --type merge -p '{\"spec\":{\"adoptionType\":%q}}' gives back what there was",
				before.Spec.AdoptionType, rec.Name, rec.Namespace, before.Spec.AdoptionType)
		}
		if _, err := fmt.Fprintf(out, "recommendation %s/%s %s\n", rec.Namespace, rec.Name, said); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	return nil
}

// preview decides for one Recommendation after the other.
func (o *adoptOptions) preview(
	ctx context.Context, s Streams, flags *pflag.FlagSet, c client.Client, meant, all []analysisv1alpha1.Recommendation,
) ([]targetsnapshot.Preview, error) {
	note := func(format string, args ...any) { fmt.Fprintf(s.Err, format+"\n", args...) }
	settings, err := o.settings(ctx, c, flags, note)
	if err != nil {
		return nil, err
	}
	previewer := targetsnapshot.Previewer{
		SnapshotReader: targetsnapshot.SnapshotReader{Live: c, Kills: o.kills(ctx, c, note)}, Settings: settings, Budgets: o.book(ctx, c, note),
	}
	var out []targetsnapshot.Preview
	for i := range meant {
		one, err := previewer.Preview(ctx, &meant[i], all, time.Now())
		if err != nil {
			return nil, fmt.Errorf("recommendation %s/%s: %w", meant[i].Namespace, meant[i].Name, err)
		}
		out = append(out, one)
	}
	return out, nil
}
