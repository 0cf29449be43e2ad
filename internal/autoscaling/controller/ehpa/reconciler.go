// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"errors"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// Settings are what the command line says.
type Settings struct {
	Propagation Propagation
	// Local is the place of cron schedules that name no time zone.
	Local *time.Location
}

// Reconciler keeps what belongs to one EffectiveHorizontalPodAutoscaler.
type Reconciler struct {
	Client client.Client
	// Live confirms what the cache does not have before something is made.
	Live    client.Reader
	Targets *workload.ScaleClient
	Queries *QueryBuilder
	// KEDA finds autoscalers that have no HPA; nil where nobody looks.
	KEDA *ScaledObjects
	// Availability tells whether the HPA controller can read forecasts.
	Availability func() MetricAvailability
	// Preview computes what an HPA would do where none may be made.
	Preview  *PreviewCalculator
	Events   events.EventRecorder
	Settings Settings
	Clock    clock.PassiveClock
}

const (
	// missingTargetRetry is when to look again for a target that does not exist, of a kind that is not watched.
	missingTargetRetry = time.Minute
	// previewInterval is the time between two computations of a preview: the HPA controller's sync period.
	previewInterval = 15 * time.Second
)

// observation is what was seen of an autoscaler and what is around it.
type observation struct {
	ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler
	now  time.Time
	// target is what is scaled, targetErr why nothing is known of it.
	target    workload.Scale
	targetErr error
	// hpa, tsp and substitute are the autoscaler's own; nil where there is none.
	hpa        *autoscalingv2.HorizontalPodAutoscaler
	tsp        *predictionv1alpha1.TimeSeriesPrediction
	substitute *autoscalingv1alpha1.Substitute
	// adoptable is the HPA that is to be taken over, beside or in place of hpa.
	adoptable *autoscalingv2.HorizontalPodAutoscaler
	// adoptedToRelease are HPAs that were taken over and are to be given back; surplus are own ones beside hpa.
	adoptedToRelease, duplicates []*autoscalingv2.HorizontalPodAutoscaler
	// foreignScaler names who else scales the target; elder another EffectiveHorizontalPodAutoscaler that has it.
	foreignScaler, olderSibling string
	// foreignUnwatched tells that nobody tells when foreign goes.
	foreignUnwatched bool
	availability     MetricAvailability
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ehpa := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	err := r.Client.Get(ctx, req.NamespacedName, ehpa)
	if apierrors.IsNotFound(err) || err == nil && ehpa.DeletionTimestamp != nil {
		r.Preview.Forget(req.NamespacedName)
		return ctrl.Result{}, nil // What it made goes with it, by the garbage collector.
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the autoscaler %s: %w", req, err)
	}
	o, err := r.observe(ctx, ehpa)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := decide(o, r.Queries, r.Settings)
	if p.computePreview {
		p.preview = r.Preview.Compute(ctx, o, p)
	} else {
		r.Preview.Forget(req.NamespacedName)
	}
	failed := r.act(ctx, o, &p)
	if err := r.updateStatus(ctx, o, &p); err != nil {
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		return ctrl.Result{}, failed
	}
	return ctrl.Result{RequeueAfter: p.requeueAfter(o)}, nil
}

// observe gathers. An error is one that another try may mend.
func (r *Reconciler) observe(ctx context.Context, ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) (*observation, error) {
	o := &observation{ehpa: ehpa, now: r.Clock.Now(), availability: r.Availability()}
	o.target, o.targetErr = r.Targets.Get(ctx, targetRef(ehpa))
	if err := r.observeAutoscalers(ctx, o); err != nil {
		return nil, err
	}
	key := client.ObjectKey{Namespace: ehpa.Namespace, Name: managedName(ehpa.Name)}
	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	if found, err := r.getOwned(ctx, ehpa, key, tsp); err != nil {
		return nil, err
	} else if found {
		o.tsp = tsp
	}
	substitute := &autoscalingv1alpha1.Substitute{}
	if found, err := r.getOwned(ctx, ehpa, key, substitute); err != nil {
		return nil, err
	} else if found {
		o.substitute = substitute
	}
	return o, nil
}

// getOwned reads an object of the autoscaler; one of somebody else under the name is as none.
func (r *Reconciler) getOwned(ctx context.Context, ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, key client.ObjectKey, into client.Object) (bool, error) {
	switch err := r.Client.Get(ctx, key, into); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading what belongs to the autoscaler %s: %w", client.ObjectKeyFromObject(ehpa), err)
	}
	return metav1.IsControlledBy(into, ehpa), nil
}

// observeAutoscalers finds the own HPA, the one to adopt, and who else scales the target.
func (r *Reconciler) observeAutoscalers(ctx context.Context, o *observation) error {
	ehpa := o.ehpa
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	if err := r.Client.List(ctx, &hpas, client.InNamespace(ehpa.Namespace), client.MatchingFields{ownerIndex: string(ehpa.UID)}); err != nil {
		return fmt.Errorf("listing the HPAs of the autoscaler %s/%s: %w", ehpa.Namespace, ehpa.Name, err)
	}
	for i := range hpas.Items {
		o.classifyOwned(&hpas.Items[i])
	}
	key := targetKey(ehpa.Spec.ScaleTargetRef)
	var others autoscalingv2.HorizontalPodAutoscalerList
	if err := r.Client.List(ctx, &others, client.InNamespace(ehpa.Namespace), client.MatchingFields{targetIndex: key}); err != nil {
		return fmt.Errorf("listing the HPAs of %s: %w", key, err)
	}
	for i := range others.Items {
		o.classifyOther(&others.Items[i])
	}
	if r.KEDA != nil && o.hpa == nil && o.foreignScaler == "" {
		found, err := r.KEDA.Find(ctx, o.now, ehpa.Namespace, ehpa.Spec.ScaleTargetRef)
		if err != nil {
			return err
		}
		o.foreignScaler, o.foreignUnwatched = found, found != ""
	}
	var siblings autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerList
	if err := r.Client.List(ctx, &siblings, client.InNamespace(ehpa.Namespace), client.MatchingFields{targetIndex: key}); err != nil {
		return fmt.Errorf("listing the autoscalers of %s: %w", key, err)
	}
	for i := range siblings.Items {
		if other := &siblings.Items[i]; yieldsTo(ehpa, other) && (o.olderSibling == "" || other.Name < o.olderSibling) {
			o.olderSibling = other.Name
		}
	}
	return nil
}

// classifyOwned says what becomes of an HPA that belongs to the autoscaler. Of two, which a crash in the middle of an adoption may
// leave, the adopted one stays.
func (o *observation) classifyOwned(hpa *autoscalingv2.HorizontalPodAutoscaler) {
	_, adopted := hpa.Annotations[autoscalingv1alpha1.AnnotationAdoptedSpec]
	named := hpa.Name == o.ehpa.Annotations[autoscalingv1alpha1.AnnotationAdoptHPA]
	switch {
	case hpa.DeletionTimestamp != nil:
	case adopted && (!named || isPreview(o.ehpa)):
		o.adoptedToRelease = append(o.adoptedToRelease, hpa)
		o.foreignScaler = "HorizontalPodAutoscaler " + hpa.Name
	case o.hpa == nil:
		o.hpa = hpa
	case named:
		o.duplicates = append(o.duplicates, o.hpa)
		o.hpa = hpa
	default:
		o.duplicates = append(o.duplicates, hpa)
	}
}

// classifyOther says what an HPA of the target is to the autoscaler.
func (o *observation) classifyOther(hpa *autoscalingv2.HorizontalPodAutoscaler) {
	if metav1.IsControlledBy(hpa, o.ehpa) || hpa.DeletionTimestamp != nil {
		return
	}
	controller := metav1.GetControllerOfNoCopy(hpa)
	if controller != nil && controller.Kind == "EffectiveHorizontalPodAutoscaler" {
		return // A sibling's; which of the two gives way is decided among them.
	}
	if controller == nil && hpa.Name == o.ehpa.Annotations[autoscalingv1alpha1.AnnotationAdoptHPA] {
		o.adoptable = hpa
		return
	}
	name := "HorizontalPodAutoscaler " + hpa.Name
	if controller != nil {
		name += fmt.Sprintf(" of %s %s", controller.Kind, controller.Name)
	}
	if o.foreignScaler == "" || name < o.foreignScaler {
		o.foreignScaler = name
	}
}

// yieldsTo tells whether an autoscaler gives way to another one of the same target: a preview to one that scales, and of
// two alike the younger to the older.
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
