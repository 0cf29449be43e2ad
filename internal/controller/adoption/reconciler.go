// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/controller/targets"
)

// Reconciler looks after one target and what is recommended for it.
type Reconciler struct {
	// Client reads Recommendations and watched kinds from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live   client.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock

	written written
}

// Reconcile implements reconcile.TypedReconciler.
func (r *Reconciler) Reconcile(ctx context.Context, key targets.Key) (ctrl.Result, error) {
	all, err := targets.Recommendations(ctx, r.Client, key)
	if err != nil {
		return ctrl.Result{}, err //nolint:wrapcheck // It names the target.
	}
	var again time.Duration
	var errs []error
	for _, kind := range kindsOf(all) {
		first := speaker(all, kind)
		for i := range all {
			rec := &all[i]
			if rec.Spec.Type != kind || rec.DeletionTimestamp != nil {
				continue
			}
			v, err := r.adopt(ctx, rec, first)
			if err == nil {
				err = r.report(ctx, rec, v)
			}
			errs = append(errs, err)
			if v.again > 0 && (again == 0 || v.again < again) {
				again = v.again
			}
		}
	}
	return ctrl.Result{RequeueAfter: again}, errors.Join(errs...)
}

// adopt brings one Recommendation to its target; first is the one of its type that speaks for the target.
func (r *Reconciler) adopt(ctx context.Context, rec, first *analysisv1alpha1.Recommendation) (verdict, error) {
	target, err := targets.Find(ctx, r.Client, r.Live, rec.Spec.TargetRef)
	switch {
	case apierrors.IsNotFound(err):
		return verdict{reason: reasonTargetGone, message: "The target does not exist."}, nil
	case err != nil && meta.IsNoMatchError(err):
		// The kind is gone, for example its CRD. It may come back; the rule's next round says what it is.
		return verdict{reason: reasonTargetGone, message: err.Error()}, nil
	case err != nil:
		return verdict{}, err //nolint:wrapcheck // It names the target.
	}
	if err := readable(rec); err != nil {
		return verdict{reason: analysisv1alpha1.ReasonFailedUpdateRecommendationValue, message: err.Error()}, nil
	}
	switch {
	case !wantsTarget(rec):
		return verdict{}, nil
	case first != nil && (first.Name != rec.Name || first.Namespace != rec.Namespace):
		return verdict{
			reason:  reasonOtherRule,
			message: fmt.Sprintf("Recommendation %s, which is older, is the one that is written on the target.", first.Name),
		}, nil
	}
	return r.annotate(ctx, rec, target)
}

// readable refuses a value that is no YAML document of its type.
func readable(rec *analysisv1alpha1.Recommendation) error {
	var value analysisv1alpha1.ProposedRecommendation
	if err := yaml.Unmarshal([]byte(rec.Status.RecommendedValue), &value); err != nil {
		return fmt.Errorf("recommendedValue: %w", err)
	}
	if value.ResourceRequest == nil {
		return nil
	}
	for _, c := range value.ResourceRequest.Containers {
		for name, text := range c.Target {
			if _, err := apiresource.ParseQuantity(text); err != nil {
				return fmt.Errorf("recommendedValue: container %s: %s %q: %w", c.ContainerName, name, text, err)
			}
		}
	}
	return nil
}
