// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	nodeload "crane.io/crane/internal/nodeload/controller"
	nodeloadpolicy "crane.io/crane/pkg/nodeload"
	"crane.io/crane/test/integration/harness"
)

func newPodTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: "init:1"}},
			Containers: []corev1.Container{{
				Name: "app", Image: "app:1", Resources: corev1.ResourceRequirements{Requests: harness.ResourceList("1", "1Gi")},
			}},
		},
	}
}

func newDeployment(namespace, name string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"owner": "shop"}},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: newPodTemplate()},
	}
}

// write is one change by craned. A policy is named where it must be refused.
type write[T client.Object] struct {
	change func(T)
	policy string
}

// try sends each change as a dry run with craned's token and checks the answer.
func try[T client.Object](t *testing.T, craned client.Client, o T, writes map[string]write[T]) {
	t.Helper()

	for name, w := range writes {
		changed, ok := o.DeepCopyObject().(T)
		if !ok {
			t.Fatalf("DeepCopyObject of %T returned another type, want the same", o)
		}

		w.change(changed)
		err := craned.Patch(t.Context(), changed, client.MergeFrom(o), client.DryRunAll)
		if w.policy != "" {
			err = checkRefused(err, w.policy)
		}
		if err != nil {
			t.Errorf("write %s: %v, want it as the policy says", name, err)
		}
	}
}

// TestCranedWorkloads: craned's token changes requests, limits and its own annotations, and nothing else of a workload.
func TestCranedWorkloads(t *testing.T) {
	_, namespace := newTenant(t)
	craned := newCraned(t)
	const policy = "crane-craned-workloads"
	web := newDeployment(namespace, "web")
	create(t, web)
	awaitRefused(t, policy, func(ctx context.Context) error {
		changed := web.DeepCopy()
		changed.Spec.Template.Spec.Containers[0].Image = "evil"
		return craned.Patch(ctx, changed, client.MergeFrom(web), client.DryRunAll)
	})

	try(t, craned, web, map[string]write[*appsv1.Deployment]{
		"annotation": {func(d *appsv1.Deployment) { d.Annotations["analysis.crane.io/resource-recommendation"] = "x" }, ""},
		"requests": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests = harness.ResourceList("2", "2Gi")
		}, ""},
		"limits": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.InitContainers[0].Resources.Limits = harness.ResourceList("2", "2Gi")
		}, ""},
		"image":      {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "evil" }, policy},
		"command":    {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Command = []string{"sh"} }, policy},
		"init image": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.InitContainers[0].Image = "evil" }, policy},
		"container": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "x", Image: "x"})
		}, policy},
		"no init":      {func(d *appsv1.Deployment) { d.Spec.Template.Spec.InitContainers = nil }, policy},
		"host network": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostNetwork = true }, policy},
		"account":      {func(d *appsv1.Deployment) { d.Spec.Template.Spec.ServiceAccountName = "admin" }, policy},
		"pod label":    {func(d *appsv1.Deployment) { d.Spec.Template.Labels["x"] = "y" }, policy},
		"replicas":     {func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(9)) }, policy},
		"paused":       {func(d *appsv1.Deployment) { d.Spec.Paused = true }, policy},
		"label":        {func(d *appsv1.Deployment) { d.Labels = map[string]string{"x": "y"} }, policy},
		"finalizer":    {func(d *appsv1.Deployment) { d.Finalizers = []string{"x.io/y"} }, policy},
		"owner": {func(d *appsv1.Deployment) {
			d.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "u"}}
		}, policy},
		"annotation of another":         {func(d *appsv1.Deployment) { d.Annotations["owner"] = "me" }, policy},
		"removed annotation of another": {func(d *appsv1.Deployment) { delete(d.Annotations, "owner") }, policy},
	})

	job := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "night"},
		Spec:       batchv1.CronJobSpec{Schedule: "0 0 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: newPodTemplate()}}},
	}
	job.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	create(t, job)

	ordered := newDeployment(namespace, "ordered")
	pod := &ordered.Spec.Template.Spec
	pod.InitContainers = append(pod.InitContainers, corev1.Container{Name: "init-second", Image: "init:2"})
	pod.Containers = append(pod.Containers, corev1.Container{Name: "sidecar", Image: "sidecar:1"})
	pod.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
	create(t, ordered)

	try(t, craned, ordered, map[string]write[*appsv1.Deployment]{
		"requests of the second": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[1].Resources.Requests = harness.ResourceList("2", "2Gi")
		}, ""},
		"order of init containers": {func(d *appsv1.Deployment) { slices.Reverse(d.Spec.Template.Spec.InitContainers) }, policy},
		"order of containers":      {func(d *appsv1.Deployment) { slices.Reverse(d.Spec.Template.Spec.Containers) }, policy},
		"claims": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		}, policy},
		"claims of an init container": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.InitContainers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		}, policy},
	})

	try(t, craned, job, map[string]write[*batchv1.CronJob]{
		"requests of a CronJob": {func(j *batchv1.CronJob) {
			j.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Resources.Requests = harness.ResourceList("2", "2Gi")
		}, ""},
		"schedule":           {func(j *batchv1.CronJob) { j.Spec.Schedule = "* * * * *" }, policy},
		"image of a CronJob": {func(j *batchv1.CronJob) { j.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image = "evil" }, policy},
		"label of a Job":     {func(j *batchv1.CronJob) { j.Spec.JobTemplate.Labels = map[string]string{"x": "y"} }, policy},
		"deadline":           {func(j *batchv1.CronJob) { j.Spec.JobTemplate.Spec.ActiveDeadlineSeconds = new(int64(1)) }, policy},
	})

	// A patch of the second containers alone, as craned sends it, keeps the order.
	const body = `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"template":{"spec":{
		"containers":[{"name":"sidecar","resources":{"requests":{"cpu":"3"}}}],"initContainers":[{"name":"init-second","resources":{"limits":{"cpu":"3"}}}]}}}}`
	for _, kind := range []types.PatchType{types.ApplyPatchType, types.StrategicMergePatchType} {
		changed := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ordered"}}
		if err := craned.Patch(t.Context(), changed, client.RawPatch(kind, []byte(body)), client.FieldOwner("craned-adoption")); err != nil {
			t.Errorf("patching the order of containers with %s: %v", kind, err)
		}
	}

	system := newDeployment("kube-system", "protected")
	create(t, system)
	try(t, craned, system, map[string]write[*appsv1.Deployment]{
		"annotation in kube-system": {func(d *appsv1.Deployment) { d.Annotations["analysis.crane.io/resource-recommendation"] = "x" }, ""},
		"requests in kube-system": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests = harness.ResourceList("2", "2Gi")
		}, policy},
	})
}

// TestCranedNodes checks that craned's token changes its own annotations of Nodes and its own taint and nothing else.
func TestCranedNodes(t *testing.T) {
	craned := newCraned(t)
	const policy = "crane-craned-nodes"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{
		"node.alpha.kubernetes.io/ttl": "0", "flannel.alpha.coreos.com/public-ip": "192.0.2.1",
	}}}
	node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	create(t, node)

	awaitRefused(t, policy, func(ctx context.Context) error {
		changed := node.DeepCopy()
		changed.Spec.Unschedulable = true
		return craned.Patch(ctx, changed, client.MergeFrom(node), client.DryRunAll)
	})

	try(t, craned, node, map[string]write[*corev1.Node]{
		"load":           {func(n *corev1.Node) { n.Annotations["cpu_usage_avg_5m"] = "0.5,2026-01-01T00:00:00Z" }, ""},
		"hot value":      {func(n *corev1.Node) { n.Annotations[nodeloadpolicy.HotValueKey] = "1,2026-01-01T00:00:00Z" }, ""},
		"holds":          {func(n *corev1.Node) { n.Annotations[nodeloadpolicy.HoldsKey] = "[]" }, ""},
		"recommendation": {func(n *corev1.Node) { n.Annotations["analysis.crane.io/resource-recommendation"] = "x" }, ""},
		"own taint": {func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: nodeload.TaintKey, Effect: corev1.TaintEffectNoSchedule})
		}, ""},
		"own taint that evicts": {func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: nodeload.TaintKey, Effect: corev1.TaintEffectNoExecute})
		}, policy},
		"own taint instead of another": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: nodeload.TaintKey, Effect: corev1.TaintEffectNoSchedule}}
		}, policy},
		"removed taint":     {func(n *corev1.Node) { n.Spec.Taints = nil }, policy},
		"taint":             {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}} }, policy},
		"label":             {func(n *corev1.Node) { n.Labels["zone"] = "b" }, policy},
		"finalizer":         {func(n *corev1.Node) { n.Finalizers = []string{"x.io/y"} }, policy},
		"ttl":               {func(n *corev1.Node) { n.Annotations["node.alpha.kubernetes.io/ttl"] = "9" }, policy},
		"removed ttl":       {func(n *corev1.Node) { delete(n.Annotations, "node.alpha.kubernetes.io/ttl") }, policy},
		"scale-down":        {func(n *corev1.Node) { n.Annotations["cluster-autoscaler.kubernetes.io/scale-down-disabled"] = "true" }, policy},
		"address":           {func(n *corev1.Node) { n.Annotations["flannel.alpha.coreos.com/public-ip"] = "198.51.100.1" }, policy},
		"removed address":   {func(n *corev1.Node) { delete(n.Annotations, "flannel.alpha.coreos.com/public-ip") }, policy},
		"disruption":        {func(n *corev1.Node) { n.Annotations["karpenter.sh/do-not-disrupt"] = "true" }, policy},
		"record of agents":  {func(n *corev1.Node) { n.Annotations["ensurance.crane.io/x"] = "y" }, policy},
		"prefix of another": {func(n *corev1.Node) { n.Annotations["x.analysis.crane.io/x"] = "y" }, policy},
		"provider of IDs":   {func(n *corev1.Node) { n.Spec.ProviderID = "x://y" }, policy},
	})
}

// TestCranedAutoscalers checks that craned's token writes HPAs that an EffectiveHorizontalPodAutoscaler controls, takes over those without a
// controller alone, and keeps their spec while it controls them.
func TestCranedAutoscalers(t *testing.T) {
	_, namespace := newTenant(t)
	craned := newCraned(t)
	const policy = "crane-craned-autoscalers"

	newHPA := func(namespace, name string, owned bool) *autoscalingv2.HorizontalPodAutoscaler {
		hpa := &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 3,
			},
		}

		if owned {
			hpa.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: "EffectiveHorizontalPodAutoscaler", Name: "x", UID: "u", Controller: new(true),
			}}
		}

		return hpa
	}

	takeOver := func(hpa *autoscalingv2.HorizontalPodAutoscaler, oldSpec string) {
		hpa.Spec.MaxReplicas, hpa.OwnerReferences = 9, newHPA("", "", true).OwnerReferences
		hpa.Annotations = map[string]string{autoscalingv1alpha1.AnnotationAdoptedSpec: oldSpec}
	}
	awaitRefused(t, policy, func(ctx context.Context) error {
		return craned.Create(ctx, newHPA(namespace, "free", false), client.DryRunAll)
	})
	foreign := newHPA(namespace, "foreign", false)
	create(t, foreign)

	try(t, craned, foreign, map[string]write[*autoscalingv2.HorizontalPodAutoscaler]{
		"change of another's": {func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MaxReplicas = 9 }, policy},
		"adoption":            {func(h *autoscalingv2.HorizontalPodAutoscaler) { takeOver(h, `{"maxReplicas":3}`) }, ""},
		"takeover without the old spec": {func(h *autoscalingv2.HorizontalPodAutoscaler) {
			takeOver(h, "")
			h.Annotations = nil
		}, policy},
		"takeover with an empty old spec": {func(h *autoscalingv2.HorizontalPodAutoscaler) { takeOver(h, "") }, policy},
	})

	controlled := newHPA(namespace, "controlled", false)
	keda := metav1.OwnerReference{APIVersion: "keda.sh/v1alpha1", Kind: "ScaledObject", Name: "x", UID: "v", Controller: new(true)}
	controlled.OwnerReferences = []metav1.OwnerReference{keda}
	create(t, controlled)

	try(t, craned, controlled, map[string]write[*autoscalingv2.HorizontalPodAutoscaler]{
		"takeover from KEDA": {func(h *autoscalingv2.HorizontalPodAutoscaler) { takeOver(h, `{"maxReplicas":3}`) }, policy},
		"takeover beside KEDA": {func(h *autoscalingv2.HorizontalPodAutoscaler) {
			takeOver(h, `{"maxReplicas":3}`)
			former := keda
			former.Controller = nil
			h.OwnerReferences = append(h.OwnerReferences, former)
		}, policy},
	})

	adopted := newHPA(namespace, "adopted", false)
	takeOver(adopted, `{"maxReplicas":3}`)
	create(t, adopted)

	try(t, craned, adopted, map[string]write[*autoscalingv2.HorizontalPodAutoscaler]{
		"change of an adopted one": {func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MaxReplicas = 7 }, ""},
		"lost old spec":            {func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Annotations = nil }, policy},
		"changed old spec":         {func(h *autoscalingv2.HorizontalPodAutoscaler) { takeOver(h, `{"maxReplicas":1}`) }, policy},
		"return": {func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Annotations = nil
			h.OwnerReferences = nil
			h.Spec.MaxReplicas = 3
		}, ""},
	})

	if err := checkRefused(craned.Delete(t.Context(), foreign, client.DryRunAll), policy); err != nil {
		t.Errorf("deletion of another's: %v", err)
	}
	if err := checkRefused(craned.Create(t.Context(), newHPA("kube-system", "x", true), client.DryRunAll), policy); err != nil {
		t.Errorf("in kube-system: %v", err)
	}

	own := newHPA(namespace, "own", true)
	if err := craned.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}

	try(t, craned, own, map[string]write[*autoscalingv2.HorizontalPodAutoscaler]{
		"own":     {func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MaxReplicas = 9 }, ""},
		"release": {func(h *autoscalingv2.HorizontalPodAutoscaler) { h.OwnerReferences = nil }, ""},
	})

	if err := craned.Delete(t.Context(), own); err != nil {
		t.Errorf("deletion of its own: %v", err)
	}
}

// TestCranedPods: craned's token evicts, resizes and scales outside protected namespaces only.
func TestCranedPods(t *testing.T) {
	_, namespace := newTenant(t)
	_, optedOut := newTenant(t)
	craned := newCraned(t)
	const policy = "crane-craned-pods"

	label := &corev1.Namespace{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: optedOut}, label); err != nil {
		t.Fatal(err)
	}

	before := label.DeepCopy()
	label.Labels["crane.io/opt-out"] = "true"
	if err := admin.Patch(t.Context(), label, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}

	for _, ns := range []string{namespace, optedOut, "kube-system"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one"}, Spec: newPodTemplate().Spec}
		pod.Spec.ServiceAccountName = "default"
		pod.Spec.AutomountServiceAccountToken = new(false)
		create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}})
		create(t, pod)
		web := newDeployment(ns, "scaled")
		create(t, web)

		writes := map[string]func(context.Context) error{
			"evict": func(ctx context.Context) error {
				return craned.SubResource("eviction").Create(ctx, pod.DeepCopy(), &policyv1.Eviction{}, client.DryRunAll)
			},
			"resize": func(ctx context.Context) error {
				changed := pod.DeepCopy()
				changed.Spec.Containers[0].Resources.Requests = harness.ResourceList("2", "2Gi")
				return craned.SubResource("resize").Patch(ctx, changed, client.MergeFrom(pod), client.DryRunAll)
			},
			"scale": func(ctx context.Context) error {
				scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "scaled"}, Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
				return craned.SubResource("scale").Update(ctx, web.DeepCopy(), client.WithSubResourceBody(scale), client.DryRunAll)
			},
		}

		for name, send := range writes {
			harness.Eventually(t.Context(), t, waitTimeout, fmt.Sprintf("%s in %s", name, ns), func(ctx context.Context) error {
				err := send(ctx)
				if ns != namespace {
					err = checkRefused(err, policy)
				}

				return err
			})
		}
	}
}

// TestCreatedSecrets: an account that creates its certificate cannot create a Secret that gets the token of another account.
func TestCreatedSecrets(t *testing.T) {
	for account, policy := range map[string]string{"craned": "crane-craned-secrets", "metric-adapter": "crane-metric-adapter-secrets"} {
		t.Run(account, func(t *testing.T) {
			own := newAccount(t, account)
			token := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "crane-system", Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "crane-agent"},
				},
				Type: corev1.SecretTypeServiceAccountToken,
			}

			awaitRefused(t, policy, func(ctx context.Context) error { return own.Create(ctx, token.DeepCopy(), client.DryRunAll) })
		})
	}
}

// createClusterScoped creates an object and deletes it after the test.
func createClusterScoped(t *testing.T, o client.Object) {
	t.Helper()

	create(t, o)
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), o); err != nil {
			t.Error(err)
		}
	})
}

// TestCranedWebhooks checks that craned's token changes the authorities of its webhook configurations and nothing else.
func TestCranedWebhooks(t *testing.T) {
	craned := newCraned(t)
	const policy = "crane-craned-webhooks"
	serve := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "crane-system", Name: "craned-webhook"}}

	// No object of the test matches the rules.
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"examples"}},
	}}

	pods := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "crane-pods"}}
	guard := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "crane"}}
	for _, name := range []string{"one.crane.io", "two.crane.io"} {
		pods.Webhooks = append(pods.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: name, ClientConfig: serve, Rules: rules, FailurePolicy: new(admissionregistrationv1.Ignore),
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		})
		guard.Webhooks = append(guard.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: name, ClientConfig: serve, Rules: rules, FailurePolicy: new(admissionregistrationv1.Fail),
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		})
	}

	createClusterScoped(t, pods)
	createClusterScoped(t, guard)
	awaitRefused(t, policy, func(ctx context.Context) error {
		changed := guard.DeepCopy()
		changed.Webhooks = nil
		return craned.Patch(ctx, changed, client.MergeFrom(guard), client.DryRunAll)
	})

	bundle := authority(t)
	type mutating = admissionregistrationv1.MutatingWebhookConfiguration
	try(t, craned, pods, map[string]write[*mutating]{
		"authority": {func(c *mutating) {
			c.Webhooks[0].ClientConfig.CABundle = bundle
			c.Webhooks[1].ClientConfig.CABundle = bundle
		}, ""},
		"all resources": {func(c *mutating) {
			c.Webhooks[0].Rules = []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
			}}
		}, policy},
		"address": {func(c *mutating) {
			c.Webhooks[1].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://evil.example.com"), CABundle: bundle}
		}, policy},
		"service": {func(c *mutating) {
			c.Webhooks[0].ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: "evil", Name: "evil"}
		}, policy},
		"path":           {func(c *mutating) { c.Webhooks[0].ClientConfig.Service.Path = new("/evil") }, policy},
		"failure policy": {func(c *mutating) { c.Webhooks[1].FailurePolicy = new(admissionregistrationv1.Fail) }, policy},
		"selector": {func(c *mutating) {
			c.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}
		}, policy},
		"another webhook": {func(c *mutating) {
			another := c.Webhooks[0].DeepCopy()
			another.Name = "three.crane.io"
			c.Webhooks = append(c.Webhooks, *another)
		}, policy},
		"renamed":          {func(c *mutating) { c.Webhooks[0].Name = "three.crane.io" }, policy},
		"order":            {func(c *mutating) { c.Webhooks[0], c.Webhooks[1] = c.Webhooks[1], c.Webhooks[0] }, policy},
		"removed webhook":  {func(c *mutating) { c.Webhooks = c.Webhooks[:1] }, policy},
		"removed webhooks": {func(c *mutating) { c.Webhooks = nil }, policy},
		"label":            {func(c *mutating) { c.Labels = map[string]string{"x": "y"} }, policy},
		"annotation":       {func(c *mutating) { c.Annotations = map[string]string{"x": "y"} }, policy},
	})

	type validating = admissionregistrationv1.ValidatingWebhookConfiguration
	try(t, craned, guard, map[string]write[*validating]{
		"authority of a guard": {func(c *validating) { c.Webhooks[0].ClientConfig.CABundle = bundle }, ""},
		"ignored guard":        {func(c *validating) { c.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore) }, policy},
		"removed guard":        {func(c *validating) { c.Webhooks = c.Webhooks[1:] }, policy},
		"condition of a guard": {func(c *validating) {
			c.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
		}, policy},
	})
}

// TestMetricAdapterAPIServices checks that metric-adapter's token changes the authority of the APIServices it answers and nothing else.
func TestMetricAdapterAPIServices(t *testing.T) {
	adapter := newAccount(t, "metric-adapter")
	const policy = "crane-metric-adapter-apiservices"
	newAPIService := func(group, service string) *apiregistrationv1.APIService {
		return &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: "v1beta1." + group},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: group, Version: "v1beta1", GroupPriorityMinimum: 100, VersionPriority: 100, InsecureSkipTLSVerify: true,
				Service: &apiregistrationv1.ServiceReference{Namespace: "crane-system", Name: service, Port: new(int32(443))},
			},
		}
	}

	own := newAPIService("external.metrics.k8s.io", "metric-adapter")
	foreign := newAPIService("custom.metrics.k8s.io", "keda")
	createClusterScoped(t, own)
	createClusterScoped(t, foreign)
	awaitRefused(t, policy, func(ctx context.Context) error {
		changed := own.DeepCopy()
		changed.Spec.Service.Name = "evil"
		return adapter.Patch(ctx, changed, client.MergeFrom(own), client.DryRunAll)
	})

	bundle := authority(t)
	trust := func(a *apiregistrationv1.APIService) {
		a.Spec.InsecureSkipTLSVerify = false
		a.Spec.CABundle = bundle
	}

	try(t, adapter, own, map[string]write[*apiregistrationv1.APIService]{
		"authority": {trust, ""},
		"service": {func(a *apiregistrationv1.APIService) {
			a.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "evil", Name: "evil", Port: new(int32(443))}
		}, policy},
		"port":       {func(a *apiregistrationv1.APIService) { a.Spec.Service.Port = new(int32(8443)) }, policy},
		"priority":   {func(a *apiregistrationv1.APIService) { a.Spec.GroupPriorityMinimum = 20000 }, policy},
		"label":      {func(a *apiregistrationv1.APIService) { a.Labels = map[string]string{"x": "y"} }, policy},
		"annotation": {func(a *apiregistrationv1.APIService) { a.Annotations = map[string]string{"x": "y"} }, policy},
	})

	try(t, adapter, foreign, map[string]write[*apiregistrationv1.APIService]{"authority of another's": {trust, policy}})
	trusted := own.DeepCopy()
	trust(trusted)

	if err := admin.Patch(t.Context(), trusted, client.MergeFrom(own)); err != nil {
		t.Fatal(err)
	}

	try(t, adapter, trusted, map[string]write[*apiregistrationv1.APIService]{
		"no verification": {func(a *apiregistrationv1.APIService) {
			a.Spec.InsecureSkipTLSVerify = true
			a.Spec.CABundle = nil
		}, policy},
	})
}

// authority returns the authority of the API server, as any valid bundle.
func authority(t *testing.T) []byte {
	t.Helper()

	config := control.Config()
	if len(config.CAData) == 0 {
		t.Fatal("the configuration of the API server has no authority, want one")
	}

	return config.CAData
}
