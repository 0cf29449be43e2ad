// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"errors"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/internal/kube/workload"
)

// Settings are the command-line settings of the controller.
type Settings struct {
	Propagation Propagation
	// Zones are the time zones of cron schedules.
	Zones *scalingmetric.Zones
}

// Reconciler creates and updates the objects of an EffectiveHorizontalPodAutoscaler.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server, to resolve creations that conflict with an object missing from the cache.
	Live    client.Reader
	Targets *workload.ScaleClient
	Queries *QueryBuilder
	// Requests reads what the pods of targets request.
	Requests *PodRequestReader
	// KEDA finds ScaledObjects without an HPA; nil skips the search.
	KEDA *ScaledObjects
	// Availability reports whether the HPA controller can read forecasts.
	Availability func() MetricAvailability
	// Preview computes the decisions of an HPA where none may be created.
	Preview  *PreviewCalculator
	Events   events.EventRecorder
	Settings Settings
	Clock    clock.PassiveClock
}

const (
	// missingTargetRetry is the time until a missing target of an unwatched kind, and a label of a namespace, is read again.
	missingTargetRetry = time.Minute
	// previewInterval is the time between two computations of a preview: the sync period of the HPA controller.
	previewInterval = 15 * time.Second
)

// observation is the state of the cluster around one autoscaler, read once per reconcile.
type observation struct {
	ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler
	now  time.Time
	// target is the scaled workload; targetErr is the reason why it is unknown.
	target    workload.Scale
	targetErr error
	// optedOut means that the target or its namespace has the label crane.io/opt-out.
	optedOut bool
	// requests are what the pods request, as far as forecasts need it.
	requests podRequests
	scalers
	// prediction and substitute are controlled by the autoscaler; nil where they do not exist.
	prediction   *predictionv1alpha1.TimeSeriesPrediction
	substitute   *autoscalingv1alpha1.Substitute
	availability MetricAvailability
}

// scalers are the autoscalers of one target, as seen by one EffectiveHorizontalPodAutoscaler.
type scalers struct {
	// hpa is the HPA that the autoscaler controls; duplicates are further ones.
	hpa        *autoscalingv2.HorizontalPodAutoscaler
	duplicates []*autoscalingv2.HorizontalPodAutoscaler
	// adoptable is the HPA to adopt; adoptedToRelease are adopted HPAs to release.
	adoptable        *autoscalingv2.HorizontalPodAutoscaler
	adoptedToRelease []*autoscalingv2.HorizontalPodAutoscaler
	// foreignScaler names an autoscaler that Crane does not control; foreignUnwatched means that its deletion causes no reconcile.
	foreignScaler    string
	foreignUnwatched bool
	// olderSibling is the name of an EffectiveHorizontalPodAutoscaler that takes precedence.
	olderSibling string
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ehpa := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	err := r.Client.Get(ctx, req.NamespacedName, ehpa)
	if apierrors.IsNotFound(err) || err == nil && ehpa.DeletionTimestamp != nil {
		r.Preview.Forget(req.NamespacedName)
		r.Requests.Forget(req.NamespacedName)
		return ctrl.Result{}, nil // The garbage collector deletes the controlled objects.
	}

	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the autoscaler %s: %w", req, err)
	}

	o, err := r.observe(ctx, ehpa)
	if err != nil {
		return ctrl.Result{}, err
	}

	p := decide(o, r.Queries, r.Settings)
	preview := r.Preview.Compute(ctx, o, p)
	applied := r.act(ctx, o, p)
	if err := errors.Join(applied.err, r.updateStatus(ctx, o, p, preview, applied)); err != nil {
		return ctrl.Result{}, err
	}

	return ctrl.Result{RequeueAfter: requeueAfter(o, p, applied)}, nil
}

// observe reads the state of the cluster. Its errors are worth a retry.
func (r *Reconciler) observe(ctx context.Context, ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) (observation, error) {
	o := observation{ehpa: ehpa, now: r.Clock.Now(), availability: r.Availability()}
	o.target, o.targetErr = r.Targets.Get(ctx, targetRef(ehpa))
	var err error
	if o.optedOut, err = r.isOptedOut(ctx, ehpa.Namespace, o.target); err != nil {
		return observation{}, err
	}

	if o.targetErr == nil {
		if o.requests, err = r.Requests.Read(ctx, ehpa, o.target, o.now); err != nil {
			return observation{}, err
		}
	}

	if o.scalers, err = r.findScalers(ctx, ehpa, o.now); err != nil {
		return observation{}, err
	}

	if o.prediction, err = getOwned(ctx, r.Client, ehpa, &predictionv1alpha1.TimeSeriesPrediction{}); err != nil {
		return observation{}, err
	}

	o.substitute, err = getOwned(ctx, r.Client, ehpa, &autoscalingv1alpha1.Substitute{})
	return o, err
}

// isOptedOut reports whether a namespace or a target in it has the label crane.io/opt-out.
func (r *Reconciler) isOptedOut(ctx context.Context, namespace string, target workload.Scale) (bool, error) {
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: namespace}, ns, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading namespace %s: %w", namespace, err)
	}

	return optout.Labeled(ns.Labels) || optout.Labeled(target.Labels), nil
}

// getOwned reads the managed object of a kind into the given one. It returns nil where there is none that the autoscaler controls.
func getOwned[T client.Object](ctx context.Context, c client.Reader, ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, object T) (T, error) {
	var none T
	switch err := c.Get(ctx, client.ObjectKey{Namespace: ehpa.Namespace, Name: managedName(ehpa.Name)}, object); {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("reading %T of the autoscaler %s: %w", object, client.ObjectKeyFromObject(ehpa), err)
	case !metav1.IsControlledBy(object, ehpa):
		return none, nil
	}

	return object, nil
}

// findScalers lists the autoscalers of the target, and the HPAs that the autoscaler controls, and sorts them by their role.
func (r *Reconciler) findScalers(ctx context.Context, ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, now time.Time) (scalers, error) {
	inNamespace := client.InNamespace(ehpa.Namespace)
	key := targetKey(ehpa.Spec.ScaleTargetRef)

	var owned, all autoscalingv2.HorizontalPodAutoscalerList
	if err := r.Client.List(ctx, &owned, inNamespace, client.MatchingFields{ownerIndex: string(ehpa.UID)}); err != nil {
		return scalers{}, fmt.Errorf("listing the HPAs of the autoscaler %s/%s: %w", ehpa.Namespace, ehpa.Name, err)
	}

	if err := r.Client.List(ctx, &all, inNamespace, client.MatchingFields{targetIndex: key}); err != nil {
		return scalers{}, fmt.Errorf("listing the HPAs of %s: %w", key, err)
	}

	out := sortHPAs(ehpa, owned.Items, all.Items)

	// A paused ScaledObject has no HPA by which it would be found.
	if r.KEDA != nil && out.hpa == nil && out.foreignScaler == "" {
		found, err := r.KEDA.Find(ctx, now, ehpa.Namespace, ehpa.Spec.ScaleTargetRef)
		if err != nil {
			return scalers{}, err
		}

		out.foreignScaler = found
		out.foreignUnwatched = found != ""
	}

	var siblings autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerList
	if err := r.Client.List(ctx, &siblings, inNamespace, client.MatchingFields{targetIndex: key}); err != nil {
		return scalers{}, fmt.Errorf("listing the autoscalers of %s: %w", key, err)
	}

	for i := range siblings.Items {
		if sibling := &siblings.Items[i]; yieldsTo(ehpa, sibling) && (out.olderSibling == "" || sibling.Name < out.olderSibling) {
			out.olderSibling = sibling.Name
		}
	}

	return out, nil
}

// sortHPAs sorts the HPAs that the autoscaler controls and the HPAs of its target by their role. A crash during an adoption may
// leave two controlled ones; the adopted one stays.
func sortHPAs(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, owned, all []autoscalingv2.HorizontalPodAutoscaler) scalers {
	var out scalers
	adopt := ehpa.Annotations[autoscalingv1alpha1.AnnotationAdoptHPA]
	for i := range owned {
		hpa := &owned[i]
		_, adopted := hpa.Annotations[autoscalingv1alpha1.AnnotationAdoptedSpec]
		switch {
		case hpa.DeletionTimestamp != nil:
		case adopted && (hpa.Name != adopt || isPreview(ehpa)):
			out.adoptedToRelease = append(out.adoptedToRelease, hpa)
			out.foreignScaler = "HorizontalPodAutoscaler " + hpa.Name
		case out.hpa == nil:
			out.hpa = hpa

		case hpa.Name == adopt:
			out.duplicates = append(out.duplicates, out.hpa)
			out.hpa = hpa
		default:
			out.duplicates = append(out.duplicates, hpa)
		}
	}

	for i := range all {
		hpa := &all[i]
		controller := metav1.GetControllerOfNoCopy(hpa)
		if hpa.DeletionTimestamp != nil || controller != nil && controller.Kind == ehpaKind { // The owned ones, and those of siblings.
			continue
		}
		if controller == nil && hpa.Name == adopt {
			out.adoptable = hpa
			continue
		}

		name := "HorizontalPodAutoscaler " + hpa.Name
		if controller != nil {
			name += fmt.Sprintf(" of %s %s", controller.Kind, controller.Name)
		}
		if out.foreignScaler == "" || name < out.foreignScaler {
			out.foreignScaler = name
		}
	}

	return out
}

// yieldsTo reports whether a gives way to b, which has the same target: a preview to one that scales, else the younger to the older.
func yieldsTo(a, b *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) bool {
	if a.UID == b.UID || b.DeletionTimestamp != nil {
		return false
	}

	if isPreview(a) != isPreview(b) {
		return isPreview(a)
	}

	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}

	return b.Name < a.Name
}

func isPreview(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) bool {
	return ehpa.Spec.ScaleStrategy == autoscalingv1alpha1.ScaleStrategyPreview
}
