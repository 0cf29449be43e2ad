// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/test/integration/harness"
)

// zonesKey is the annotation of plugin NodeResourceTopologyMatch.
const zonesKey = "topology.crane.io/topology-result"

// newSchedulablePod creates a pod without a node in a new namespace.
func newSchedulablePod(t *testing.T) *corev1.Pod {
	t.Helper()

	_, namespace := newTenant(t)
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "web", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"owner": "shop"},
		},
		Spec: newPodTemplate().Spec,
	}

	pod.Spec.ServiceAccountName = "default"
	pod.Spec.AutomountServiceAccountToken = new(false)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	create(t, pod)

	return pod
}

// podWrites are changes of a pod, by any patch or update of it.
func podWrites(policy string) map[string]write[*corev1.Pod] {
	return map[string]write[*corev1.Pod]{
		"zones":      {func(p *corev1.Pod) { p.Annotations[zonesKey] = `[{"name":"node0"}]` }, ""},
		"image":      {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil" }, policy},
		"init image": {func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "evil" }, policy},
		"gate":       {func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }, policy},
		"toleration": {func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
		}, policy},
		"deadline":           {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)) }, policy},
		"label":              {func(p *corev1.Pod) { p.Labels["app"] = "bank" }, policy},
		"removed label":      {func(p *corev1.Pod) { delete(p.Labels, "app") }, policy},
		"annotation":         {func(p *corev1.Pod) { p.Annotations["owner"] = "me" }, policy},
		"new annotation":     {func(p *corev1.Pod) { p.Annotations["topology.crane.io/x"] = "me" }, policy},
		"removed annotation": {func(p *corev1.Pod) { delete(p.Annotations, "owner") }, policy},
		"finalizer":          {func(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} }, policy},
		"owner": {func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "u"}}
		}, policy},
	}
}

// TestSchedulerPods checks that crane-scheduler's token changes the annotation of zones of a pod and nothing else of it.
func TestSchedulerPods(t *testing.T) {
	const policy = "crane-scheduler-pods"
	scheduler := newAccount(t, "crane-scheduler")
	pod := newSchedulablePod(t)
	awaitRefused(t, policy, func(ctx context.Context) error {
		changed := pod.DeepCopy()
		changed.Spec.Containers[0].Image = "evil"
		return scheduler.Patch(ctx, changed, client.MergeFrom(pod), client.DryRunAll)
	})

	try(t, scheduler, pod, podWrites(policy))

	for name, change := range map[string]func(*corev1.Pod){
		"node":            func(p *corev1.Pod) { p.Spec.NodeName = "evil" },
		"resources":       func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = harness.ResourceList("9", "9Gi") },
		"service account": func(p *corev1.Pod) { p.Spec.ServiceAccountName = "admin" },
	} {
		changed := pod.DeepCopy()
		change(changed)

		err := scheduler.Patch(t.Context(), changed, client.MergeFrom(pod), client.DryRunAll)
		if err == nil {
			t.Errorf("a patch of the %s is accepted, want a refusal", name)
		}
	}

	for name, send := range map[string]func() error{
		"update":             func() error { return scheduler.Update(t.Context(), evil(pod), client.DryRunAll) },
		"create":             func() error { return scheduler.Create(t.Context(), newPodLike(pod), client.DryRunAll) },
		"resize":             func() error { return subResourcePatch(t, scheduler, pod, "resize") },
		"ephemeralcontainer": func() error { return subResourcePatch(t, scheduler, pod, "ephemeralcontainers") },
	} {
		err := send()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s of a pod: got %v, want Forbidden", name, err)
		}
	}
}

func evil(pod *corev1.Pod) *corev1.Pod {
	changed := pod.DeepCopy()
	changed.Spec.Containers[0].Image = "evil"

	return changed
}

func newPodLike(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "another"}, Spec: pod.Spec}
}

func subResourcePatch(t *testing.T, scheduler client.Client, pod *corev1.Pod, subResource string) error {
	t.Helper()

	changed := pod.DeepCopy()
	if subResource == "resize" {
		changed.Spec.Containers[0].Resources.Requests = harness.ResourceList("9", "9Gi")
	} else {
		changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "shell", Image: "evil"},
		}}
	}

	return scheduler.SubResource(subResource).Patch(t.Context(), changed, client.MergeFrom(pod), client.DryRunAll)
}

// TestSchedulerPodStatus checks that crane-scheduler's token changes the conditions and the nomination that a scheduler writes, and nothing else
// through the status of a pod.
func TestSchedulerPodStatus(t *testing.T) {
	const policy = "crane-scheduler-pods"
	scheduler := newAccount(t, "crane-scheduler")
	pod := newSchedulablePod(t)
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.PodScheduled, Status: corev1.ConditionFalse},
	}

	if err := admin.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}

	awaitRefused(t, policy, func(ctx context.Context) error {
		changed := pod.DeepCopy()
		changed.Status.PodIP = "192.0.2.1"
		return scheduler.Status().Patch(ctx, changed, client.MergeFrom(pod), client.DryRunAll)
	})

	for name, w := range map[string]write[*corev1.Pod]{
		"unschedulable": {func(p *corev1.Pod) { p.Status.Conditions[1].Reason = corev1.PodReasonUnschedulable }, ""},
		"victim": {func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
			})
		}, ""},
		"nomination":    {func(p *corev1.Pod) { p.Status.NominatedNodeName = "one" }, ""},
		"ready":         {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue }, policy},
		"not ready":     {func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[1:] }, policy},
		"address":       {func(p *corev1.Pod) { p.Status.PodIP = "192.0.2.1"; p.Status.PodIPs = []corev1.PodIP{{IP: "192.0.2.1"}} }, policy},
		"phase":         {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, policy},
		"label":         {func(p *corev1.Pod) { p.Labels["app"] = "bank" }, policy},
		"annotation":    {func(p *corev1.Pod) { p.Annotations["owner"] = "me" }, policy},
		"finalizer":     {func(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} }, policy},
		"removed label": {func(p *corev1.Pod) { p.Labels = nil }, policy},
	} {
		for verb, send := range map[string]func(*corev1.Pod) error{
			"patch": func(p *corev1.Pod) error {
				return scheduler.Status().Patch(t.Context(), p, client.StrategicMergeFrom(pod), client.DryRunAll)
			},
			"update": func(p *corev1.Pod) error { return scheduler.Status().Update(t.Context(), p, client.DryRunAll) },
		} {
			changed := pod.DeepCopy()
			w.change(changed)

			err := send(changed)
			if w.policy != "" {
				err = checkRefused(err, w.policy)
			}
			if err != nil {
				t.Errorf("%s by %s of the status: %v", name, verb, err)
			}
		}
	}
}

// TestSchedulerBindings checks that a Binding of crane-scheduler, whose annotations and labels the API server copies to the pod, has the annotation of
// zones only.
func TestSchedulerBindings(t *testing.T) {
	const policy = "crane-scheduler-bindings"
	scheduler := newAccount(t, "crane-scheduler")
	pod := newSchedulablePod(t)

	ungated := pod.DeepCopy()
	ungated.Spec.SchedulingGates = nil
	if err := admin.Patch(t.Context(), ungated, client.MergeFrom(pod)); err != nil {
		t.Fatal(err)
	}

	bind := func(ctx context.Context, labels, annotations map[string]string) error {
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, Labels: labels, Annotations: annotations},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "one"},
		}

		return scheduler.SubResource("binding").Create(ctx, pod.DeepCopy(), binding, client.DryRunAll)
	}

	awaitRefused(t, policy, func(ctx context.Context) error { return bind(ctx, nil, map[string]string{"owner": "me"}) })

	if err := bind(t.Context(), map[string]string{"app": "bank"}, nil); checkRefused(err, policy) != nil {
		t.Errorf("a Binding with a label: got %v, want a refusal by %s", err, policy)
	}

	for name, annotations := range map[string]map[string]string{"plain": nil, "zones": {zonesKey: `[{"name":"node0"}]`}} {
		if err := bind(t.Context(), map[string]string{"topology.kubernetes.io/zone": "a"}, annotations); err != nil {
			t.Errorf("%s Binding: %v", name, err)
		}
	}
}

// TestClusterSchedulerPods checks that the cluster's own scheduler gets no right by default, and with the component the annotation of zones alone.
func TestClusterSchedulerPods(t *testing.T) {
	const policy = "crane-kube-scheduler-pods"
	access := control.Config()

	access.Impersonate = rest.ImpersonationConfig{UserName: "system:kube-scheduler"}
	scheduler, err := newClient(access)
	if err != nil {
		t.Fatal(err)
	}

	pod := newSchedulablePod(t)
	for name, w := range podWrites("") {
		changed := pod.DeepCopy()
		w.change(changed)

		err := scheduler.Patch(t.Context(), changed, client.MergeFrom(pod), client.DryRunAll)
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s without the component: got %v, want Forbidden", name, err)
		}
	}

	if err := scheduler.List(t.Context(), &analysisv1alpha1.RecommendationList{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing Recommendations without the component: got %v, want Forbidden", err)
	}

	installInPlace(t)
	awaitRefused(t, policy, func(ctx context.Context) error {
		return scheduler.Patch(ctx, evil(pod), client.MergeFrom(pod), client.DryRunAll)
	})
	try(t, scheduler, pod, podWrites(policy))
}

// installInPlace installs the component that lets crane-scheduler run in the place of kube-scheduler, until the test ends.
func installInPlace(t *testing.T) {
	t.Helper()

	objects, err := manifest.ReadDir(config.Components, "components/replace-kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}

	for _, o := range objects {
		createClusterScoped(t, o)
	}
}
