// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

// maxUndo is the longest time from the first refused pod until all pods exist again.
const maxUndo = 30 * time.Second

// startWithPodWebhook runs craned with the webhook for new pods and the default interval between two decisions, and returns a function that
// restarts it.
func startWithPodWebhook(t *testing.T) (restart func()) {
	t.Helper()

	address := harness.FreeAddress(t)
	host, port, _ := strings.Cut(address, ":")
	start := func() *harness.Craned {
		return startCraned(t, "--webhook-host="+host, "--webhook-port="+port, "--adoption-look-interval=15s", "--adoption-settle=20s")
	}

	craned := start()
	harness.InstallWebhooks(t, control.Config(), admin, address)

	return func() {
		craned.Kill()
		craned = start()
	}
}

// TestLimits adopts workloads in namespaces whose rules refuse sizes. It does not run beside others, because the webhook is for all of them.
func TestLimits(t *testing.T) {
	restart := startWithPodWebhook(t)
	for name, test := range map[string]func(*testing.T, func()){
		"LimitRange before a step": testLimitRangeBefore,
		"LimitRange after a step":  testLimitRangeAfter,
		"unreadable rule":          testUnreadableRule,
		"quota without room":       testQuotaWithoutRoom,
	} {
		t.Run(name, func(t *testing.T) { test(t, restart) })
	}
}

// replacePod deletes a pod of web, and waits until all pods exist and are ready again.
func (f *fixture) replacePod(replicas int, within time.Duration) {
	f.T.Helper()

	if err := f.Delete(f.T.Context(), &f.Pods("web")[0]); err != nil {
		f.T.Fatal(err)
	}

	harness.Eventually(f.T.Context(), f.T, within, "the deleted pod of web is replaced", func(ctx context.Context) error {
		pods, err := f.ListPods(ctx, "web")
		if err != nil {
			return err
		}

		return harness.CheckReady(pods, replicas)
	})
}

// requestsWithin checks that each pod requests at least this CPU.
func requestsWithin(least string) func([]corev1.Pod) error {
	return func(pods []corev1.Pod) error {
		for i := range pods {
			if got := pods[i].Spec.Containers[0].Resources.Requests.Cpu(); got.Cmp(apiresource.MustParse(least)) < 0 {
				return fmt.Errorf("pod %s requests %s", pods[i].Name, got)
			}
		}

		return nil
	}
}

func (f *fixture) createMinimum(cpu string) {
	f.T.Helper()
	f.CreateAll(&corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Min: harness.ResourceList(cpu, ""),
		}}},
	})
}

// testLimitRangeBefore checks that a size stops at the minimum of a LimitRange, that the status names it, and that pods are still created.
func testLimitRangeBefore(t *testing.T, restart func()) {
	f := newFixture(t)
	f.createMinimum("800m")
	f.Deploy("web", 2)
	f.recommend("web", auto, "300m", "512Mi")
	f.AwaitPods("web", "have the least allowed requests", checkRequests("800m", "512Mi"))
	f.awaitPhase("web", adoption.Resting)
	f.awaitMessage("web", "LimitRange limits: cpu request of container app stays at 800m instead of 300m")
	restart()
	f.replacePod(2, maxUndo)
	f.AwaitPods("web", "have the least allowed requests", checkRequests("800m", "512Mi"))
}

// testLimitRangeAfter checks that pods are created, and running ones raised, after a LimitRange appears above an adopted size.
func testLimitRangeAfter(t *testing.T, restart func()) {
	f := newFixture(t)
	f.Deploy("web", 2)
	f.recommend("web", auto, "700m", "512Mi")
	f.awaitPhase("web", adoption.Resting)
	f.AwaitPods("web", "have the recommended requests", checkRequests("700m", "512Mi"))
	f.createMinimum("900m")
	f.replacePod(2, maxUndo)
	f.AwaitPods("web", "are within the LimitRange", requestsWithin("900m"))
	restart()
	f.replacePod(2, maxUndo)
	f.AwaitPods("web", "are within the LimitRange", requestsWithin("900m"))
	f.awaitMessage("web", "LimitRange limits")
}

// testUnreadableRule checks that a size is undone within 30 s of the first refused pod if a rule refuses it that craned cannot read.
func testUnreadableRule(t *testing.T, restart func()) {
	f := newFixture(t)
	f.Deploy("web", 2)
	f.recommend("web", auto, "700m", "512Mi")
	f.awaitPhase("web", adoption.Resting)
	f.awaitMessage("web", "LimitRanges and ResourceQuotas alone decide whether new pods get this size: craned has no right to create pods")
	template := harness.PodTemplate("web")
	f.forbidSmallPods("800m")
	restart()

	f.Eventually("new pods get the adopted size again", func(ctx context.Context) error {
		pods, err := f.ListPods(ctx, "web")
		if err != nil || len(pods) == 0 {
			return fmt.Errorf("%d pods: %w", len(pods), err)
		}

		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: "web-x", Labels: pods[0].Labels, OwnerReferences: pods[0].OwnerReferences},
			Spec:       *template.Spec.DeepCopy(),
		}
		if err := f.Create(ctx, pod, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "too small") {
			return fmt.Errorf("a new pod requests %v: %w", pod.Spec.Containers[0].Resources.Requests, err)
		}

		return nil
	})

	f.replacePod(2, maxUndo)
	f.awaitPhase("web", adoption.Held)
	f.awaitMessage("web", "too small")
	f.AwaitPods("web", "have the original requests", checkRequests("1", "512Mi"))
	f.replacePod(2, maxUndo)

	if s := f.state("web"); s.NewPods != nil || s.Rollbacks != 1 {
		t.Errorf("state %+v, want one rollback, and new pods as in the template", s)
	}
}

// forbidSmallPods creates an admission policy that refuses the creation of pods of the namespace with less CPU, until the test ends.
func (f *fixture) forbidSmallPods(least string) {
	f.T.Helper()

	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: f.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: fmt.Sprintf("quantity(object.spec.containers[0].resources.requests.cpu).compareTo(quantity('%s')) >= 0", least), Message: "too small",
			}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: f.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: f.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": f.Name},
			}},
		},
	}
	harness.Create(f.T, admin, policy, binding)

	f.Eventually("the policy is in force", func(ctx context.Context) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: "small"}, Spec: harness.PodTemplate("small").Spec}
		pod.Spec.Containers[0].Resources.Requests = harness.ResourceList("100m", "64Mi")

		if err := f.Create(ctx, pod, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "too small") {
			return fmt.Errorf("creating a small pod: %w", errors.Join(err, errors.New("want a refusal")))
		}

		return nil
	})
}

// testQuotaWithoutRoom checks that a raise waits for the room of a quota, says so, and is made when there is room.
func testQuotaWithoutRoom(t *testing.T, restart func()) {
	f := newFixture(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": apiresource.MustParse("2500m")}},
	}
	f.CreateAll(quota)
	harness.Await(f.Namespace, &corev1.ResourceQuota{}, "team", "is counted", func(q *corev1.ResourceQuota) error {
		if _, ok := q.Status.Used["requests.cpu"]; !ok {
			return errors.New("no status yet")
		}

		return nil
	})

	f.Deploy("web", 2)
	rec := f.recommend("web", auto, "1500m", "512Mi")
	text := "ResourceQuota team has no room: 2 of 2500m requests.cpu are used, and 1 more are needed"
	f.awaitMessage("web", text)
	restart()
	f.replacePod(2, maxUndo)
	f.awaitMessage("web", text)

	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(rec), rec); err != nil {
		t.Fatal(err)
	}
	if rec.Status.Adoption.Phase != string(adoption.Untouched) {
		t.Errorf("phase %q while the quota has no room, want none", rec.Status.Adoption.Phase)
	}

	harness.Change(f.Namespace, quota, "team", func(q *corev1.ResourceQuota) { q.Spec.Hard["requests.cpu"] = apiresource.MustParse("3") })
	f.AwaitPods("web", "have the raised requests", checkRequests("1500m", "512Mi"))
	f.awaitRecommendation("web", "is as recommended", func(rec *analysisv1alpha1.Recommendation) error {
		if rec.Status.Adoption == nil || rec.Status.Adoption.Message != "as recommended" {
			return fmt.Errorf("adoption %+v", rec.Status.Adoption)
		}

		return nil
	})
	f.replacePod(2, maxUndo)
}
