// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/pause"
)

// TestStatus checks the lines of a whole installation, and of one with a fault of each kind.
func TestStatus(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	whole := func() []client.Object {
		return []client.Object{
			componentDeployment("craned", 2, 2), componentDeployment("metric-adapter", 1, 1), agents(5, 5),
			cranedLeaseOf(now.Add(-3 * time.Second)), ruleWith(now.Add(-2*time.Hour), metav1.ConditionTrue, "RoundCompleted"),
		}
	}

	for name, test := range map[string]struct {
		objects []client.Object
		want    map[string]string
	}{
		"whole": {whole(), map[string]string{
			"craned": "ok crane-system/craned: 2 of 2 ready, craned:v1.2.3", "crane-agent": "ok crane-system/crane-agent: 5 of 5 ready", "crane-scheduler": "off",
			"leader": "ok craned-0 holds the lease crane-system/craned, renewed 3s ago", "writes": "ok not paused", "external metrics API": "off",
			"rules": "ok 1, all ready, the last round ended 2h ago", "recommendations": "ok none",
		}},
		"not ready": {append(whole(), componentDeployment("crane-scheduler", 0, 1)), map[string]string{"crane-scheduler": "warn crane-system/crane-scheduler: 0 of 1 ready"}},
		"paused": {append(whole(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: pause.ConfigMapName}, Data: map[string]string{pause.KeyPaused: "true", pause.KeyReason: "incident 7"},
		}), map[string]string{"writes": "warn paused by ConfigMap crane-system/crane-pause: incident 7"}},
		"resumed by hand": {append(whole(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: pause.ConfigMapName}, Data: map[string]string{pause.KeyPaused: " False\n"},
		}), map[string]string{"writes": "ok not paused"}},
		"no leader": {
			[]client.Object{componentDeployment("craned", 2, 2), cranedLeaseOf(now.Add(-time.Hour))},
			map[string]string{"leader": "warn no craned has renewed its lease within 1m0s"},
		},
		"outside the cluster": {[]client.Object{cranedLeaseOf(now)}, map[string]string{"leader": "ok craned-0 holds", "metric-adapter": "off"}},
		"outside the cluster, all": {
			[]client.Object{cranedLeaseOf(now), leaseOf("crane-scheduler", now), externalMetricsOf("metric-adapter", "True")},
			map[string]string{
				"crane-scheduler": "ok runs outside the cluster: craned-0 holds the lease crane-system/crane-scheduler", "crane-agent": "off",
				"metric-adapter": "ok runs outside the cluster", "external metrics API": "ok served by crane-system/metric-adapter",
			},
		},
		"another adapter": {
			[]client.Object{cranedLeaseOf(now), leaseOf("crane-scheduler", now.Add(-time.Hour)), externalMetricsOf("keda", "True")},
			map[string]string{"crane-scheduler": "off", "metric-adapter": "off", "external metrics API": "ok served by crane-system/keda"},
		},
		"adapter not available": {
			[]client.Object{cranedLeaseOf(now), externalMetricsOf("metric-adapter", "False")},
			map[string]string{"metric-adapter": "off", "external metrics API": "warn served by crane-system/metric-adapter, which is not available: no endpoints"},
		},
		"nothing": {nil, map[string]string{"leader": "warn no craned runs", "craned": "off"}},
		"rule failed": {
			[]client.Object{ruleWith(now, metav1.ConditionFalse, "DataSourceFailed")},
			map[string]string{"rules": "warn 0 of 1 ready; 1 DataSourceFailed"},
		},
		"one rule of two failed": {
			append(whole(), ruleOf("broken", now, metav1.ConditionFalse, "DataSourceFailed")),
			map[string]string{"rules": "warn 1 of 2 ready; 1 DataSourceFailed, the last round ended 0s ago (kubectl describe recommendationrules broken)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			checks, err := Read(t.Context(), statusClient(t, test.objects...), "crane-system", now)
			if err != nil {
				t.Fatal(err)
			}

			got := map[string]string{}
			for _, c := range checks {
				got[c.Name] = string(c.Status) + " " + c.Detail
				if c.Advice != "" {
					got[c.Name] += " (" + c.Advice + ")"
				}
			}

			for line, want := range test.want {
				if !strings.HasPrefix(got[line], want) {
					t.Errorf("%s: %q, want %q", line, got[line], want)
				}
			}
		})
	}
}

func statusClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme, predictionv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}

	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func componentMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "crane-system", Name: name, Labels: map[string]string{ComponentLabel: name}}
}

func componentPod(name string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "registry.example/crane/" + name + ":v1.2.3"}}}}
}

func componentDeployment(name string, ready, want int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: componentMeta(name), Spec: appsv1.DeploymentSpec{Replicas: &want, Template: componentPod(name)},
		Status: appsv1.DeploymentStatus{ReadyReplicas: ready, UpdatedReplicas: want},
	}
}

func agents(ready, want int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: componentMeta("crane-agent"), Spec: appsv1.DaemonSetSpec{Template: componentPod("crane-agent")},
		Status: appsv1.DaemonSetStatus{NumberReady: ready, DesiredNumberScheduled: want, UpdatedNumberScheduled: want},
	}
}

func cranedLeaseOf(renewed time.Time) *coordinationv1.Lease { return leaseOf(CranedLease, renewed) }

// externalMetricsOf returns the APIService of the external metrics API.
func externalMetricsOf(service, available string) client.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1beta1.external.metrics.k8s.io"},
		"spec":   map[string]any{"service": map[string]any{"namespace": "crane-system", "name": service}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Available", "status": available, "message": "no endpoints"}}},
	}}
}

func leaseOf(name string, renewed time.Time) *coordinationv1.Lease {
	holder := "craned-0"
	at := metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at},
	}
}

func ruleWith(at time.Time, ready metav1.ConditionStatus, reason string) *analysisv1alpha1.RecommendationRule {
	return ruleOf("all", at, ready, reason)
}

func ruleOf(name string, at time.Time, ready metav1.ConditionStatus, reason string) *analysisv1alpha1.RecommendationRule {
	return &analysisv1alpha1.RecommendationRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: analysisv1alpha1.RecommendationRuleStatus{
			LastUpdateTime: &metav1.Time{Time: at}, Conditions: []metav1.Condition{{Type: "Ready", Status: ready, Reason: reason}},
		},
	}
}
