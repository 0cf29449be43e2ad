// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/adoption"
)

// controlledBy returns the metadata of an object of a workload with a controller.
func controlledBy(name, kind, owner string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "web"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: owner, UID: types.UID("uid-" + owner), Controller: new(true)}},
	}
}

func oneCoreTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1"), corev1.ResourceMemory: apiresource.MustParse("1Gi")},
		}}}},
	}
}

func podControlledBy(kind, owner string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: controlledBy("web-1-a", kind, owner),
		Spec:       oneCoreTemplate().Spec,
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

// customTarget returns an object of a custom kind, with a pod template or without one.
func customTarget(t *testing.T, gvk schema.GroupVersionKind, withTemplate bool) *unstructured.Unstructured {
	t.Helper()

	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(1)}}}
	if withTemplate {
		template := oneCoreTemplate()
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&template)
		if err != nil {
			t.Fatal(err)
		}

		o.Object["spec"].(map[string]any)["template"] = raw
	}

	o.SetGroupVersionKind(gvk)
	o.SetNamespace("shop")
	o.SetName("web")
	o.SetUID("uid-web")

	return o
}

// TestPreview_OtherKinds checks that the pods of any owner are resized in place, with the reason for what adoption cannot do with it, and that
// nothing is changed where that is not enough.
func TestPreview_OtherKinds(t *testing.T) {
	rollout := schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Rollout"}
	cloneSet := schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "CloneSet"}
	podSet := schema.GroupVersionKind{Group: "core.strimzi.io", Version: "v1beta2", Kind: "StrimziPodSet"}
	config := schema.GroupVersionKind{Group: "apps.openshift.io", Version: "v1", Kind: "DeploymentConfig"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"}

	inProgress := customTarget(t, rollout, true)
	inProgress.Object["status"] = map[string]any{"observedGeneration": "1"}
	inProgress.SetGeneration(2)

	for name, c := range map[string]struct {
		gvk     schema.GroupVersionKind
		objects []client.Object
		reach   analysisv1alpha1.AdoptionReach
		resizes int
		text    string
	}{
		"Rollout": {
			rollout,
			[]client.Object{customTarget(t, rollout, true), &appsv1.ReplicaSet{ObjectMeta: controlledBy("web-1", "Rollout", "web")}, podControlledBy("ReplicaSet", "web-1")},
			"", 1, "new pods of a Rollout get the size of their template",
		},
		"Rollout that rolls out": {
			rollout,
			[]client.Object{inProgress, &appsv1.ReplicaSet{ObjectMeta: controlledBy("web-1", "Rollout", "web")}, podControlledBy("ReplicaSet", "web-1")},
			"", 0, "a roll-out is in progress",
		},
		"CloneSet": {cloneSet, []client.Object{customTarget(t, cloneSet, true), podControlledBy("CloneSet", "web")}, "", 1, "new pods of a CloneSet get"},
		"operator's set without a template": {
			podSet, []client.Object{customTarget(t, podSet, false), podControlledBy("StrimziPodSet", "web")}, "", 1, "new pods of a StrimziPodSet get",
		},
		"DeploymentConfig": {
			config,
			[]client.Object{
				customTarget(t, config, true), &corev1.ReplicationController{ObjectMeta: controlledBy("web-1", "DeploymentConfig", "web")},
				podControlledBy("ReplicationController", "web-1"),
			},
			"", 1, "new pods of a DeploymentConfig get",
		},
		"ReplicaSet": {
			appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
			[]client.Object{&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: oneCoreTemplate()}}, podControlledBy("ReplicaSet", "web")},
			"", 1, "new pods of a ReplicaSet get",
		},
		"ReplicaSet of a Deployment": {
			appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
			[]client.Object{
				&appsv1.ReplicaSet{ObjectMeta: controlledBy("web", "Deployment", "shop"), Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: oneCoreTemplate()}},
				podControlledBy("ReplicaSet", "web"),
			},
			"", 0, "this ReplicaSet belongs to Deployment shop",
		},
		"Job": {
			batchv1.SchemeGroupVersion.WithKind("Job"),
			[]client.Object{&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Selector: selector, Template: oneCoreTemplate()}}, podControlledBy("Job", "web")},
			"", 1, "new pods of a Job get",
		},
		"without pods": {cloneSet, []client.Object{customTarget(t, cloneSet, true)}, "", 0, "has no pods"},
		"new pods alone": {
			cloneSet, []client.Object{customTarget(t, cloneSet, true), podControlledBy("CloneSet", "web")}, analysisv1alpha1.AdoptionReachNewPods, 0, "changes nothing",
		},
		"a Service": {
			corev1.SchemeGroupVersion.WithKind("Service"), []client.Object{&corev1.Service{ObjectMeta: meta}}, "", 0, "pods of a Service are not adopted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme)); err != nil {
				t.Fatal(err)
			}

			objects := append(slices.Clone(c.objects), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
			p, rec := newFixture(t)
			p.Live = withEventFields(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)).Build()
			apiVersion, kind := c.gvk.ToAPIVersionAndKind()
			rec.Spec.TargetRef.APIVersion = apiVersion
			rec.Spec.TargetRef.Kind = kind
			rec.Spec.Adoption = &analysisv1alpha1.AdoptionSpec{Reach: c.reach}

			out, err := p.Preview(t.Context(), rec, nil, time.Now())
			if err != nil {
				t.Fatal(err)
			}

			text := strings.Join(append(out.Plan.Remarks, out.Refused, out.Plan.Summary), "\n")
			if len(out.Plan.Resizes) != c.resizes || !strings.Contains(text, c.text) {
				t.Errorf("Preview: resizes %+v, text %q, want %d resizes and %q", out.Plan.Resizes, text, c.resizes, c.text)
			}

			if size, ok := out.Plan.State.NewPodSize(); ok {
				t.Errorf("Preview: new pods get %s, want none: the webhook does not know the kind", size)
			}
		})
	}
}

// TestReadPodTemplate_Adopted checks that the size of an adopted pod is not taken for that of a template, where the target has none.
func TestReadPodTemplate_Adopted(t *testing.T) {
	s := &TargetSnapshot{Pods: []corev1.Pod{*podControlledBy("StrimziPodSet", "web")}}
	s.readPodTemplate(adoption.State{Phase: adoption.Resting, Original: sizeOf(2000)})

	if got := s.podSpec.Containers[0].Resources.Requests.Cpu().MilliValue(); got != 2000 {
		t.Errorf("readPodTemplate of an adopted pod: request %dm, want the original 2000m", got)
	}
}
