// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/pkg/adoption"
)

const (
	sampleValue = "resourceRequest:\n  containers:\n  - containerName: app\n    target:\n      cpu: 250m\n"
	// sampleAnnotation is what gocrane writes for sampleValue: the inner document.
	sampleAnnotation = "containers:\n- containerName: app\n  target:\n    cpu: 250m\n"
)

// fixture is the state after one reconciliation of one Recommendation.
type fixture struct {
	rec        *analysisv1alpha1.Recommendation
	target     *appsv1.Deployment
	events     int
	again      time.Duration
	err        error
	reconciler *Reconciler
}

var webKey = targetindex.Key{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

// reconcileOne reconciles the target of one Recommendation in a cluster with other objects.
func reconcileOne(t *testing.T, rec *analysisv1alpha1.Recommendation, funcs interceptor.Funcs, others ...client.Object) fixture {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(others, rec)...).
		WithStatusSubresource(&analysisv1alpha1.Recommendation{}).WithInterceptorFuncs(funcs).
		WithIndex(&analysisv1alpha1.Recommendation{}, targetindex.Index, targetindex.IndexValues).WithReturnManagedFields().Build()
	recorder := events.NewFakeRecorder(100)
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	out := fixture{rec: &analysisv1alpha1.Recommendation{}, target: &appsv1.Deployment{}, reconciler: NewReconciler(c, c, recorder, clock, targetsnapshot.Settings{Policy: adoption.DefaultPolicy()})}
	out.reconciler.SystemNamespace = "crane-system"
	result, err := out.reconciler.Reconcile(t.Context(), targetindex.KeyOf(rec.Spec.TargetRef))
	out.again = result.RequeueAfter

	out.err = err
	out.events = len(recorder.Events)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(rec), out.rec); err != nil {
		t.Fatal(err)
	}

	if err := client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, out.target)); err != nil {
		t.Fatal(err)
	}

	return out
}

func deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u-x"},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("2")}},
		}}}}},
	}
}

func adoptable(name string, adoption analysisv1alpha1.AdoptionType) *analysisv1alpha1.Recommendation {
	return &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1000, 0)),
			Labels: map[string]string{analysisv1alpha1.LabelRuleUID: "uid"},
		},
		Spec: analysisv1alpha1.RecommendationSpec{
			TargetRef: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
			Type:      analysisv1alpha1.AnalysisTypeResource, AdoptionType: adoption,
		},
		Status: analysisv1alpha1.RecommendationStatus{
			RecommendationContent: analysisv1alpha1.RecommendationContent{RecommendedValue: sampleValue},
		},
	}
}

func adopted(l fixture) string {
	c := meta.FindStatusCondition(l.rec.Status.Conditions, analysisv1alpha1.ConditionAdopted)
	if c == nil {
		return ""
	}

	return c.Reason
}

func TestAdoption(t *testing.T) {
	broken := adoptable("broken", analysisv1alpha1.AdoptionTypeStatus)
	broken.Status.RecommendedValue = "resourceRequest: ["
	empty := adoptable("empty", analysisv1alpha1.AdoptionTypeStatusAndAnnotation)
	empty.Status.RecommendedValue = ""
	recovered := adoptable("recovered", analysisv1alpha1.AdoptionTypeStatusAndAnnotation)
	recovered.Status.Conditions = []metav1.Condition{{Type: analysisv1alpha1.ConditionAdopted, Status: metav1.ConditionFalse, Reason: "Earlier"}}
	older := adoptable("a-older", analysisv1alpha1.AdoptionTypeStatusAndAnnotation)

	older.CreationTimestamp = metav1.NewTime(time.Unix(10, 0))
	onlyStatus := adoptable("b-older", analysisv1alpha1.AdoptionTypeStatus)
	onlyStatus.CreationTimestamp = metav1.NewTime(time.Unix(10, 0))
	for name, c := range map[string]struct {
		rec        *analysisv1alpha1.Recommendation
		others     []client.Object
		annotation string
		reason     string
	}{
		"status only":        {rec: adoptable("x", analysisv1alpha1.AdoptionTypeStatus)},
		"annotation":         {rec: adoptable("x", analysisv1alpha1.AdoptionTypeStatusAndAnnotation), annotation: sampleAnnotation},
		"no value yet":       {rec: empty},
		"unreadable value":   {rec: broken, reason: analysisv1alpha1.ReasonFailedUpdateRecommendationValue},
		"obstacle gone":      {rec: recovered, annotation: sampleAnnotation},
		"an older one":       {rec: adoptable("x", analysisv1alpha1.AdoptionTypeStatusAndAnnotation), others: []client.Object{older}, annotation: sampleAnnotation, reason: reasonOtherRecommendation},
		"an older one aside": {rec: adoptable("x", analysisv1alpha1.AdoptionTypeStatusAndAnnotation), others: []client.Object{onlyStatus}, annotation: sampleAnnotation},
	} {
		t.Run(name, func(t *testing.T) {
			got := reconcileOne(t, c.rec, interceptor.Funcs{}, append(c.others, deployment("web"))...)
			if got.err != nil {
				t.Fatalf("Reconcile returned error %v, want none", got.err)
			}

			if a := got.target.Annotations[analysisv1alpha1.AnnotationResourceRecommendation]; a != c.annotation {
				t.Errorf("annotation %q, want %q", a, c.annotation)
			}
			if r := adopted(got); r != c.reason {
				t.Errorf("condition Adopted has reason %q, want %q", r, c.reason)
			}
			if cpu := got.target.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "2" {
				t.Errorf("the workload requests %s, want the 2 of its template: adoption writes only the annotation here", cpu)
			}
		})
	}
}

// TestAnnotationFormat compares the annotations with the documents that gocrane writes (pkg/controller/recommendation/updater.go): tools
// parse them.
func TestAnnotationFormat(t *testing.T) {
	for name, c := range map[string]struct {
		kind        analysisv1alpha1.AnalysisType
		value       string
		key, wanted string
	}{
		"resource": {analysisv1alpha1.AnalysisTypeResource, sampleValue, "analysis.crane.io/resource-recommendation", sampleAnnotation},
		"replicas": {
			analysisv1alpha1.AnalysisTypeReplicas, "replicasRecommendation:\n  replicas: 3\n", "analysis.crane.io/replicas-recommendation", "replicas: 3\n",
		},
		"hpa": {
			analysisv1alpha1.AnalysisTypeHPA,
			"effectiveHPA:\n  maxReplicas: 5\n  metrics:\n  - resource:\n      name: cpu\n      target:\n        averageUtilization: 50\n        type: Utilization\n    type: Resource\n  minReplicas: 2\n",
			"analysis.crane.io/hpa-recommendation",
			"maxReplicas: 5\nmetrics:\n- resource:\n    name: cpu\n    target:\n      averageUtilization: 50\n      type: Utilization\n  type: Resource\nminReplicas: 2\n",
		},
		"value of another type": {analysisv1alpha1.AnalysisTypeReplicas, sampleValue, "analysis.crane.io/replicas-recommendation", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rec := adoptable("x", analysisv1alpha1.AdoptionTypeStatusAndAnnotation)
			rec.Spec.Type, rec.Status.RecommendedValue = c.kind, c.value
			got := reconcileOne(t, rec, interceptor.Funcs{}, deployment("web"))
			if got.err != nil || adopted(got) != "" {
				t.Fatalf("Reconcile returned error %v and reason %q, want neither", got.err, adopted(got))
			}

			if a := got.target.Annotations[c.key]; a != c.wanted {
				t.Errorf("annotation %q, want %q", a, c.wanted)
			}

			for key, value := range got.target.Annotations {
				if key != c.key {
					t.Errorf("annotation %s is %q, want %s alone", key, value, c.key)
				}
			}
		})
	}
}

// TestReconcile_StatusWithoutAdoption: status.adoption is removed when the Recommendation is not applied to pods.
func TestReconcile_StatusWithoutAdoption(t *testing.T) {
	for _, kind := range []analysisv1alpha1.AdoptionType{analysisv1alpha1.AdoptionTypeStatus, analysisv1alpha1.AdoptionTypeStatusAndAnnotation} {
		rec := adoptable("x", kind)
		rec.Status.Adoption = &analysisv1alpha1.AdoptionStatus{Phase: "Resting", Message: "as recommended", Steps: 2}
		got := reconcileOne(t, rec, interceptor.Funcs{}, deployment("web"))
		if got.err != nil || got.rec.Status.Adoption != nil || got.events != 0 {
			t.Errorf("%s: status.adoption %+v, %d events, error %v, want none of them", kind, got.rec.Status.Adoption, got.events, got.err)
		}
	}
}

// TestReconcile_StatusAfterAnnotation checks that the annotation goes when a Recommendation is written to its status alone, unless others own it.
func TestReconcile_StatusAfterAnnotation(t *testing.T) {
	for name, c := range map[string]struct {
		other client.FieldOwner
		want  string
	}{
		"of Crane alone":     {annotationManager, ""},
		"of Crane and other": {"kubectl", sampleAnnotation},
	} {
		t.Run(name, func(t *testing.T) {
			l := reconcileOne(t, adoptable("x", analysisv1alpha1.AdoptionTypeStatusAndAnnotation), interceptor.Funcs{}, deployment("web"))
			if got := l.target.Annotations[analysisv1alpha1.AnnotationResourceRecommendation]; got != sampleAnnotation {
				t.Fatalf("annotation = %q, want %q", got, sampleAnnotation)
			}

			apply := identityOf(l.rec.Spec.TargetRef, l.target)
			apply.SetAnnotations(map[string]string{analysisv1alpha1.AnnotationResourceRecommendation: sampleAnnotation})
			if err := l.reconciler.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(apply), c.other); err != nil {
				t.Fatal(err)
			}

			l.rec.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeStatus
			if err := l.reconciler.Client.Update(t.Context(), l.rec); err != nil {
				t.Fatal(err)
			}

			for range 2 { // The second time there is nothing to remove.
				if _, err := l.reconciler.Reconcile(t.Context(), webKey); err != nil {
					t.Fatalf("Reconcile with adoptionType Status = %v, want no error", err)
				}
			}

			target := &appsv1.Deployment{}
			if err := l.reconciler.Client.Get(t.Context(), client.ObjectKeyFromObject(l.target), target); err != nil {
				t.Fatal(err)
			}
			if got := target.Annotations[analysisv1alpha1.AnnotationResourceRecommendation]; got != c.want {
				t.Errorf("annotation with adoptionType Status = %q, want %q", got, c.want)
			}
		})
	}
}

// TestAnnotationRefused: a lasting refusal becomes a condition and an event and is retried after a while; a temporary one is
// retried at once.
func TestAnnotationRefused(t *testing.T) {
	resource := schema.GroupResource{Group: "apps", Resource: "deployments"}
	annotate := func(t *testing.T, refusal error) fixture {
		t.Helper()

		return reconcileOne(t, adoptable("x", analysisv1alpha1.AdoptionTypeStatusAndAnnotation), interceptor.Funcs{
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				return refusal
			},
		}, deployment("web"))
	}

	for name, refusal := range map[string]error{
		"another owner": apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict}}, "conflict with \"kubectl\""),
		"no rights":     apierrors.NewForbidden(resource, "web", errors.New("no")),
	} {
		t.Run(name, func(t *testing.T) {
			got := annotate(t, refusal)
			if got.err != nil || adopted(got) != analysisv1alpha1.ReasonFailedUpdateRecommendationValue || got.events != 1 || got.again != retryRefused {
				t.Errorf("error %v, reason %s, %d events, again after %s, want %s with 1 event and again after %s", got.err, adopted(got), got.events, got.again, analysisv1alpha1.ReasonFailedUpdateRecommendationValue, retryRefused)
			}
		})
	}

	for name, refusal := range map[string]error{
		"unavailable": apierrors.NewServiceUnavailable("soon"),
		"overtaken":   apierrors.NewConflict(resource, "web", errors.New("changed")),
	} {
		t.Run(name, func(t *testing.T) {
			got := annotate(t, refusal)
			if got.err == nil || adopted(got) != "" {
				t.Errorf("error %v, reason %q, want an error and no reason", got.err, adopted(got))
			}
		})
	}
}

// TestTargetGone: the Recommendation of a user reports the missing target; that of a rule is deleted by its own controller.
func TestTargetGone(t *testing.T) {
	own := adoptable("x", analysisv1alpha1.AdoptionTypeStatus)
	own.Labels = nil
	if got := reconcileOne(t, own, interceptor.Funcs{}); got.err != nil || adopted(got) != reasonTargetGone || got.again != retryRefused {
		t.Errorf("Reconcile of a user's Recommendation without a target: %+v, want reason %s and again after %s", got, reasonTargetGone, retryRefused)
	}
	if got := reconcileOne(t, adoptable("x", analysisv1alpha1.AdoptionTypeStatus), interceptor.Funcs{}); got.err != nil || adopted(got) != "" {
		t.Errorf("Reconcile of a rule's Recommendation without a target: %+v, want no condition", got)
	}
}

func TestKindGone(t *testing.T) {
	rec := adoptable("x", analysisv1alpha1.AdoptionTypeStatusAndAnnotation)
	rec.Spec.TargetRef = corev1.ObjectReference{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Namespace: "shop", Name: "web"}
	got := reconcileOne(t, rec, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, partial := o.(*metav1.PartialObjectMetadata); partial {
				return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "argoproj.io", Kind: "Rollout"}}
			}

			return c.Get(ctx, key, o, opts...)
		},
	})

	if got.err != nil || got.rec == nil || adopted(got) != reasonTargetGone {
		t.Errorf("Reconcile with a kind that is not installed: %+v, want reason %s", got, reasonTargetGone)
	}
}

// TestTargetOfAnotherKind: a target of a kind that Crane does not write is not read, and one that may not be read is tried again after a while.
func TestTargetOfAnotherKind(t *testing.T) {
	for name, c := range map[string]struct {
		apiVersion, kind, reason string
		reads                    int
		again                    time.Duration
	}{
		"Secret":  {"v1", "Secret", reasonNotSupported, 0, 0},
		"Service": {"v1", "Service", reasonNotSupported, 0, 0},
		"Pod":     {"v1", "Pod", analysisv1alpha1.ReasonFailedUpdateRecommendationValue, 1, retryRefused},
		"Rollout": {"argoproj.io/v1alpha1", "Rollout", analysisv1alpha1.ReasonFailedUpdateRecommendationValue, 1, retryRefused},
	} {
		t.Run(name, func(t *testing.T) {
			rec := adoptable("x", analysisv1alpha1.AdoptionTypeStatusAndAnnotation)
			rec.Spec.TargetRef = corev1.ObjectReference{APIVersion: c.apiVersion, Kind: c.kind, Namespace: "shop", Name: "web"}
			reads := 0

			got := reconcileOne(t, rec, interceptor.Funcs{
				Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, partial := o.(*metav1.PartialObjectMetadata); partial {
						reads++
						return apierrors.NewForbidden(schema.GroupResource{Resource: c.kind}, key.Name, errors.New("no"))
					}

					return inner.Get(ctx, key, o, opts...)
				},
			})

			if got.err != nil || adopted(got) != c.reason || reads != c.reads || got.again != c.again {
				t.Errorf("error %v, reason %s, %d reads, again after %s, want reason %s after %d reads, again after %s", got.err, adopted(got), reads, got.again, c.reason, c.reads, c.again)
			}
		})
	}
}

// TestAnnotate_CacheLags: reconciliations in quick succession write the annotation once while the cache lags; an annotation that
// is removed later is written again.
func TestAnnotate_CacheLags(t *testing.T) {
	applied := 0
	got := reconcileOne(t, adoptable("x", analysisv1alpha1.AdoptionTypeStatusAndAnnotation), interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			applied++ // The fake API server drops the write, as a stale cache would.
			return nil
		},
	}, deployment("web"))
	if got.err != nil {
		t.Fatalf("Reconcile returned error %v, want none", got.err)
	}

	result, err := got.reconciler.Reconcile(t.Context(), webKey)
	if err != nil || applied != 1 || result.RequeueAfter != cacheLag {
		t.Errorf("Reconcile = %v, error %v, after %d writes, want a wait of %s after 1 write", result, err, applied, cacheLag)
	}

	clock, ok := got.reconciler.Clock.(*clocktesting.FakePassiveClock)
	if !ok {
		t.Fatalf("the clock is %T, want a fake one", got.reconciler.Clock)
	}

	clock.SetTime(clock.Now().Add(cacheLag))
	if result, err = got.reconciler.Reconcile(t.Context(), webKey); err != nil || applied != 2 || result.RequeueAfter != 0 {
		t.Errorf("Reconcile = %v, error %v, after %d writes, want the annotation written again after its removal", result, err, applied)
	}
	if _, err = got.reconciler.Reconcile(t.Context(), webKey); err != nil || len(got.reconciler.annotator.recentWrites.entries) != 1 {
		t.Errorf("Reconcile returned error %v with %d recent writes, want 1", err, len(got.reconciler.annotator.recentWrites.entries))
	}
}

// TestForeignTarget: a Recommendation changes nothing outside its namespace, whatever the webhook let pass.
func TestForeignTarget(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	for name, c := range map[string]struct {
		namespace string
		target    corev1.ObjectReference
		reason    string
	}{
		"other namespace":       {"attacker", corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"}, reasonForeignTarget},
		"from Crane's own":      {"crane-system", corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"}, reasonForeignTarget},
		"a Node":                {"attacker", corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "one"}, reasonForeignTarget},
		"a Node, in a lie":      {"attacker", corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Namespace: "shop", Name: "one"}, reasonForeignTarget},
		"a Node, as in its own": {"attacker", corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Namespace: "attacker", Name: "one"}, reasonForeignTarget},
		"a Node, from Crane's":  {"crane-system", corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "one"}, ""},
		"in the same namespace": {"shop", corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rec := adoptable("x", analysisv1alpha1.AdoptionTypeStatusAndAnnotation)
			rec.Namespace, rec.Spec.TargetRef = c.namespace, c.target

			wrote := false
			got := reconcileOne(t, rec, interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					wrote = true
					return nil
				},
			}, deployment("web"), node)
			if got.err != nil || adopted(got) != c.reason || wrote != (c.reason == "") {
				t.Errorf("error %v, reason %q, wrote %v; want reason %q", got.err, adopted(got), wrote, c.reason)
			}
		})
	}
}

// TestForgedOwner: an owner reference gives precedence only if the autoscaler exists with this UID and selects the target.
func TestForgedOwner(t *testing.T) {
	older := adoptable("a-older", analysisv1alpha1.AdoptionTypeStatusAndAnnotation)
	older.CreationTimestamp = metav1.NewTime(time.Unix(10, 0))
	evpa := func(target string) *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler {
		e := &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "sizer", UID: "e-1"}}
		e.Spec.TargetRef.APIVersion = "apps/v1"
		e.Spec.TargetRef.Kind = "Deployment"
		e.Spec.TargetRef.Name = target

		return e
	}

	for name, c := range map[string]struct {
		uid    string
		others []client.Object
		reason string
	}{
		"owner":            {"e-1", []client.Object{evpa("web")}, ""},
		"no such owner":    {"e-1", nil, reasonOtherRecommendation},
		"another UID":      {"e-2", []client.Object{evpa("web")}, reasonOtherRecommendation},
		"another's target": {"e-1", []client.Object{evpa("api")}, reasonOtherRecommendation},
	} {
		t.Run(name, func(t *testing.T) {
			rec := adoptable("x", analysisv1alpha1.AdoptionTypeStatusAndAnnotation)
			rec.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: "EffectiveVerticalPodAutoscaler", Name: "sizer", UID: types.UID(c.uid), Controller: new(true),
			}}

			got := reconcileOne(t, rec, interceptor.Funcs{}, append(c.others, older, deployment("web"))...)
			if got.err != nil || adopted(got) != c.reason {
				t.Errorf("error %v, reason %q, want %q", got.err, adopted(got), c.reason)
			}
		})
	}
}

// TestReconcile_UnreadableState checks that a state that cannot be read is not taken for none: the budget of the target would be released.
func TestReconcile_UnreadableState(t *testing.T) {
	got := reconcileOne(t, adoptable("x", analysisv1alpha1.AdoptionTypeStatus), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if key.Name == "unsynced" {
				return apierrors.NewTimeoutError("the informer is not synced", 1)
			}

			return c.Get(ctx, key, o, options...)
		},
	}, deployment("web"))

	key := webKey
	key.Name = "unsynced"
	const want = "reading the adoption state of apps/Deployment/shop/unsynced"
	if _, err := got.reconciler.Reconcile(t.Context(), key); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Reconcile(%s) returned error %v, want one with %q", key, err, want)
	}

	key.Name = "missing"
	if _, err := got.reconciler.Reconcile(t.Context(), key); err != nil {
		t.Errorf("Reconcile(%s) returned error %v, want none for a target that does not exist", key, err)
	}
}
