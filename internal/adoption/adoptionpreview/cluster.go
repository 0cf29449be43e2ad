// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoptionpreview

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/installation"
	decide "crane.io/crane/pkg/adoption"
)

// adoptionFlagPrefix is the prefix of craned's adoption flags.
const adoptionFlagPrefix = "adoption-"

// settings returns the adoption settings of the running craned, overridden by the flags of this command. If they
// cannot be read, it prints a note and uses the defaults.
func (r Reader) settings(ctx context.Context) (targetsnapshot.Settings, error) {
	options := targetsnapshot.NewOptions()
	deployed := pflag.NewFlagSet("craned", pflag.ContinueOnError)
	deployed.SetOutput(io.Discard)
	options.AddFlags(deployed)

	args, err := r.cranedArgs(ctx)
	if err == nil {
		err = deployed.Parse(args)
	}
	if err != nil {
		r.notef("The flags of craned cannot be read, using its defaults: %v", err)
	}

	if r.Flags != nil {
		r.Flags.Visit(func(f *pflag.Flag) {
			switch {
			case f.Name == adoptionFlagPrefix+"window":
				options.Windows = r.Adoption.Windows
			case strings.HasPrefix(f.Name, adoptionFlagPrefix):
				_ = deployed.Set(f.Name, f.Value.String()) // The value was validated by this command.
			}
		})
	}

	settings, err := options.Settings()
	if err != nil {
		return settings, fmt.Errorf("invalid adoption settings: %w", err)
	}

	return settings, nil
}

// cranedArgs returns the adoption flags in craned's Deployment.
func (r Reader) cranedArgs(ctx context.Context) ([]string, error) {
	selector, err := labels.Parse(installation.CranedSelector)
	if err != nil {
		return nil, fmt.Errorf("invalid selector of craned: %w", err)
	}

	var list appsv1.DeploymentList
	if err := r.Client.List(ctx, &list, client.InNamespace(r.CranedNamespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing Deployments in %s: %w", r.CranedNamespace, err)
	}

	if len(list.Items) == 0 {
		return nil, fmt.Errorf("namespace %s has no Deployment with label %s", r.CranedNamespace, installation.CranedSelector)
	}

	var out []string
	for _, container := range list.Items[0].Spec.Template.Spec.Containers {
		for _, arg := range slices.Concat(container.Command, container.Args) {
			name, _, valued := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			// The dry run of craned does not matter for what it would send.
			if strings.HasPrefix(arg, "-") && strings.HasPrefix(name, adoptionFlagPrefix) && valued && name != adoptionFlagPrefix+"dry-run" {
				out = append(out, arg)
			}
		}
	}

	return out, nil
}

// oomKills returns craned's OOM record, or prints a note and returns nil if it cannot be read.
func (r Reader) oomKills(ctx context.Context) targetsnapshot.KillReader {
	record := targetsnapshot.ConfigMapKillReader{Reader: r.Client, Namespace: r.CranedNamespace}
	if _, err := record.Kills(ctx); err != nil {
		r.notef("OOM kills of deleted pods cannot be read: %v", err)
		return nil
	}

	return record
}

// vpaReader finds VerticalPodAutoscalers, and prints a note if the user may not list them.
type vpaReader struct {
	targetsnapshot.VPAFinder

	notef func(format string, args ...any)
}

// Find implements targetsnapshot.VPAFinder.
func (v vpaReader) Find(ctx context.Context, namespace string, now time.Time) (map[targetindex.Key]string, error) {
	found, err := v.VPAFinder.Find(ctx, namespace, now)
	if apierrors.IsForbidden(err) {
		v.notef("VerticalPodAutoscalers cannot be read; craned changes no pods beside one: %v", err)
		return nil, nil
	}

	return found, err
}

// loadBudgets returns the running adoptions of the cluster, and prints a note if they cannot be read.
func (r Reader) loadBudgets(ctx context.Context) *decide.BudgetTracker {
	budgets := decide.NewBudgetTracker()
	err := targetsnapshot.LoadBudgets(ctx, budgets, r.Client, func(kind schema.GroupVersionKind) (client.ObjectList, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return list, nil
	})
	if err != nil {
		r.notef("Running adoptions in other namespaces cannot be read, so budgets and the circuit breaker ignore them: %v", err)
	}

	return budgets
}
