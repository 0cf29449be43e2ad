// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package substitute

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/enqueue"
	"crane.io/crane/internal/kube/fairqueue"
	"crane.io/crane/internal/kube/firstseen"
	"crane.io/crane/internal/kube/workload"
)

const (
	// syncInterval is the time between two reconciles: the sync period of the HPA controller.
	syncInterval = 15 * time.Second
	// staleAfter is how long spec.replicas may differ from the workload before it is reset. It bounds the writes while both keep
	// differing.
	staleAfter              = 5 * time.Minute
	maxConcurrentReconciles = 4
)

// Reconciler reconciles Substitutes.
type Reconciler struct {
	Client  client.Client
	Targets *workload.ScaleClient
	Clock   clock.PassiveClock

	// differingSince tracks since when spec.replicas differs from the workload.
	differingSince firstseen.Tracker
}

// AddToManager adds the controller. The manager must not have started.
func AddToManager(mgr manager.Manager, clk clock.PassiveClock) error {
	shares := fairqueue.ByNamespace(clk)
	err := builder.ControllerManagedBy(mgr).
		Named("substitute").
		For(&autoscalingv1alpha1.Substitute{}).
		WithOptions(shares.Options(maxConcurrentReconciles, maxConcurrentReconciles/4)).
		Complete(shares.Reconciler(enqueue.OnConflict(&Reconciler{
			Client:  mgr.GetClient(),
			Targets: &workload.ScaleClient{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Client: mgr.GetClient()},
			Clock:   clk,
		})))
	if err != nil {
		return fmt.Errorf("building the controller of substitutes: %w", err)
	}

	return nil
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &autoscalingv1alpha1.Substitute{}
	err := r.Client.Get(ctx, req.NamespacedName, s)
	if apierrors.IsNotFound(err) || err == nil && s.DeletionTimestamp != nil {
		r.differingSince.Forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the substitute %s: %w", req, err)
	}

	target, err := r.Targets.Get(ctx, targetRef(s))
	if errors.Is(err, workload.ErrNoTarget) || errors.Is(err, workload.ErrNoScale) {
		return ctrl.Result{RequeueAfter: syncInterval}, nil // The controller of its owner reports the problem.
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("the target of the substitute %s: %w", req, err)
	}

	if s, err = r.writeStatus(ctx, s, target); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.resetReplicas(ctx, s, target); err != nil {
		return ctrl.Result{}, err
	}

	return ctrl.Result{RequeueAfter: syncInterval}, nil
}

func targetRef(s *autoscalingv1alpha1.Substitute) workload.Ref {
	ref := s.Spec.SubstituteTargetRef
	return workload.Ref{
		Namespace:  s.Namespace,
		APIVersion: ref.APIVersion,
		Kind:       ref.Kind,
		Name:       ref.Name,
	}
}

// writeStatus patches the status and returns the updated object.
func (r *Reconciler) writeStatus(
	ctx context.Context, s *autoscalingv1alpha1.Substitute, target workload.Scale,
) (*autoscalingv1alpha1.Substitute, error) {
	status := autoscalingv1alpha1.SubstituteStatus{LabelSelector: target.Selector, Replicas: target.CurrentReplicas}
	if s.Status == status {
		return s, nil
	}

	changed := s.DeepCopy()
	changed.Status = status
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(s, client.MergeFromWithOptimisticLock{}))); err != nil {
		return nil, fmt.Errorf("writing the status of the substitute %s/%s: %w", s.Namespace, s.Name, err)
	}

	return changed, nil
}

// resetReplicas sets spec.replicas to that of the workload where the two have differed for staleAfter.
func (r *Reconciler) resetReplicas(ctx context.Context, s *autoscalingv1alpha1.Substitute, target workload.Scale) error {
	key := client.ObjectKeyFromObject(s)
	if s.Spec.Replicas != nil && *s.Spec.Replicas == target.Replicas {
		r.differingSince.Forget(key)
		return nil
	}

	if s.Spec.Replicas != nil && r.differingSince.Since(key, r.Clock.Now()) < staleAfter {
		return nil
	}

	changed := s.DeepCopy()
	replicas := target.Replicas

	changed.Spec.Replicas = &replicas
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, changed, client.MergeFromWithOptions(s, client.MergeFromWithOptimisticLock{}))); err != nil {
		return fmt.Errorf("setting the substitute %s back: %w", key, err)
	}

	r.differingSince.Forget(key)
	return nil
}
