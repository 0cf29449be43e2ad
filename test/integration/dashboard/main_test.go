// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard_test logs persons with different rights in to `crane dashboard serve`, which runs with the rights that it has in a
// cluster, against a real API server and a real Prometheus.
package dashboard_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/integration/harness"
)

// Shared by all tests, because the start takes longer than a test.
var (
	control *controlplane.ControlPlane
	admin   client.Client
	history string
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Suite{
		Name: "dashboard", Kinds: func(kind string) bool { return kind == "CustomResourceDefinition" || kind == "Namespace" },
		Before: func(ctx context.Context, dir string) error {
			history = filepath.Join(dir, "history")
			return writeHistory(ctx, history)
		},
		Ready: func(ctx context.Context, c *controlplane.ControlPlane, _ string) (err error) {
			control = c
			if admin, err = harness.NewClient(c.Config(), analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme, predictionv1alpha1.AddToScheme, topologyv1alpha1.AddToScheme); err != nil {
				return err
			}

			applier, err := manifest.NewApplier(c.Config(), "dashboard-test")
			if err != nil {
				return err
			}

			objects, err := manifest.ReadDir(config.Components, "components/dashboard")
			if err != nil {
				return err
			}

			for _, o := range objects {
				if o.GetKind() != "Deployment" {
					if err := applier.Apply(ctx, o); err != nil {
						return err
					}
				}
			}

			return createObjects(ctx)
		},
	}))
}

// createObjects creates two namespaces with a workload, its recommendation, and a person who may read and adopt there; eve may do nothing,
// root everything.
func createObjects(ctx context.Context) error {
	var objects []client.Object
	for namespace, person := range map[string]string{"shop": "ann", "pay": "bob"} {
		meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
		pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
		pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "web"}}
		rec := &analysisv1alpha1.Recommendation{ObjectMeta: meta("web-resource-1")}
		rec.Spec.Type = analysisv1alpha1.AnalysisTypeResource
		rec.Spec.TargetRef = corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: "web"}

		objects = append(objects,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, &corev1.ServiceAccount{ObjectMeta: meta(person)}, rec,
			&appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: pod}},
			&rbacv1.Role{ObjectMeta: meta("editor"), Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"analysis.crane.io"}, Resources: []string{"recommendations"}, Verbs: []string{"get", "list", "patch"}},
				{APIGroups: []string{"", "apps", "batch", "autoscaling", "autoscaling.crane.io", "prediction.crane.io", "policy"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
			}},
			&rbacv1.RoleBinding{
				ObjectMeta: meta("editor"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "editor"},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: person}},
			})
	}

	objects = append(objects, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "eve"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "root"}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "root"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "shop", Name: "root"}},
		})

	// Namespaces first.
	for _, first := range []bool{true, false} {
		for _, o := range objects {
			if _, namespace := o.(*corev1.Namespace); namespace != first {
				continue
			}

			if err := admin.Create(ctx, o); err != nil {
				return err
			}
		}
	}

	return nil
}

// writeHistory writes the usage of one pod of Deployment web in both namespaces.
func writeHistory(ctx context.Context, dir string) error {
	const scrape, days, mib = time.Minute, 3, 1 << 20
	now := time.Now().Truncate(scrape)
	grid := promserver.Grid{Start: now.Add(-days * 24 * time.Hour), End: now.Add(time.Hour), Step: scrape}
	var all []promserver.Series

	add := func(value func(i int) float64, pairs ...string) {
		all = append(all, promserver.Series{Labels: labels.FromStrings(pairs...), Fill: func(dst []float64, at int) {
			for i := range dst {
				dst[i] = value(at + i)
			}
		}})
	}

	const replicaSet, pod = "web-6d4cf56db6", "web-6d4cf56db6-bbbbb"
	for _, namespace := range []string{"shop", "pay"} {
		add(func(i int) float64 { return float64(i) * scrape.Seconds() * 0.2 },
			"__name__", "container_cpu_usage_seconds_total", "namespace", namespace, "pod", pod, "container", "app", "image", "i")
		add(func(i int) float64 { return 300*mib + 20*mib*math.Sin(float64(i)/200) },
			"__name__", "container_memory_working_set_bytes", "namespace", namespace, "pod", pod, "container", "app", "image", "i")
		one := func(int) float64 { return 1 }
		add(one, "__name__", "kube_pod_owner", "namespace", namespace, "pod", pod, "owner_kind", "ReplicaSet", "owner_name", replicaSet, "owner_is_controller", "true")
		add(one, "__name__", "kube_replicaset_owner", "namespace", namespace, "replicaset", replicaSet, "owner_kind", "Deployment", "owner_name", "web", "owner_is_controller", "true")
	}

	_, err := promserver.WriteBlocks(ctx, dir, grid, all)
	return err
}
