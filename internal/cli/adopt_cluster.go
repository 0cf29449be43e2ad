// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/adoption/targetsnapshot"
	decide "crane.io/crane/pkg/adoption"
)

// adoptionFlags begin the names of craned's flags of adoption.
const adoptionFlags = "adoption-"

// settings are those of the craned that runs, with the flags of this command in their place. Where it cannot be read, note is
// told.
func (o *adoptOptions) settings(ctx context.Context, c client.Reader, flags *pflag.FlagSet, note func(string, ...any)) (targetsnapshot.Settings, error) {
	options := targetsnapshot.NewOptions()
	deployed := pflag.NewFlagSet("craned", pflag.ContinueOnError)
	deployed.SetOutput(io.Discard)
	options.AddFlags(deployed)
	args, err := o.cranedArgs(ctx, c)
	if err == nil {
		err = deployed.Parse(args)
	}
	if err != nil {
		note("Flags of craned are not known (%v): its defaults are taken.", err)
	}
	flags.Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == adoptionFlags+"window":
			options.Windows = o.adoption.Windows
		case strings.HasPrefix(f.Name, adoptionFlags):
			_ = deployed.Set(f.Name, f.Value.String()) // It was accepted once.
		}
	})
	settings, err := options.Settings()
	if err != nil {
		return settings, fmt.Errorf("settings of adoption: %w", err)
	}
	return settings, nil
}

// cranedArgs are the arguments about adoption in craned's Deployment.
func (o *adoptOptions) cranedArgs(ctx context.Context, c client.Reader) ([]string, error) {
	selector, err := labels.Parse(cranedSelector)
	if err != nil {
		return nil, fmt.Errorf("selector of craned: %w", err)
	}
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list, client.InNamespace(o.home), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing Deployments in %s: %w", o.home, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("namespace %s has no Deployment with label %s", o.home, cranedSelector)
	}
	var out []string
	for _, container := range list.Items[0].Spec.Template.Spec.Containers {
		for _, arg := range slices.Concat(container.Command, container.Args) {
			name, _, valued := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if strings.HasPrefix(arg, "-") && strings.HasPrefix(name, adoptionFlags) && valued && name != adoptionFlags+"dry-run" {
				out = append(out, arg)
			}
		}
	}
	return out, nil
}

// kills is craned's record of OOM kills, nil where it cannot be read: then note is told.
func (o *adoptOptions) kills(ctx context.Context, c client.Reader, note func(string, ...any)) targetsnapshot.KillReader {
	ledger := targetsnapshot.ConfigMapKillReader{Reader: c, Namespace: o.home}
	if _, err := ledger.Kills(ctx); err != nil {
		note("OOM kills of pods that are gone are not known: %v.", err)
		return nil
	}
	return ledger
}

// book is what is under way in the cluster; note is told where that cannot be read.
func (o *adoptOptions) book(ctx context.Context, c client.Reader, note func(string, ...any)) *decide.BudgetTracker {
	book := decide.NewBudgetTracker()
	err := targetsnapshot.LoadBudgets(ctx, book, c, func(kind schema.GroupVersionKind) (client.ObjectList, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return list, nil
	})
	if err != nil {
		note("What is under way in other namespaces is not known, so budgets and the circuit breaker are not counted: %v.", err)
	}
	return book
}
