// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/e2e/node"
	"crane.io/crane/test/integration/harness"
)

// TestAdoption checks that craned resizes a pod in place on a real kubelet without a restart, and rolls back a pod that is OOM-killed
// afterward.
func TestAdoption(t *testing.T) {
	n := node.Start(t, node.Options{})
	f := adoptionFixture{Node: n, cgroups: n.Cgroups(t), client: startCraned(t, n)}
	t.Run("in-place", func(t *testing.T) {
		f.createDeployment(t, "adopted", "pause", nil)
		pod := f.awaitLowered(t, "adopted")
		after := n.Await(t, pod, "says its new size", func(p *corev1.Pod) bool {
			r := p.Status.ContainerStatuses[0].Resources
			return r != nil && r.Limits.Cpu().MilliValue() == 200 && r.Limits.Memory().Value() == 64<<20
		})

		if was, is := pod.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; is.RestartCount != 0 || is.ContainerID != was.ContainerID || after.UID != pod.UID {
			t.Errorf("the container was restarted: %+v, want the same container in the same pod", is)
		}
	})

	t.Run("rolled-back", func(t *testing.T) {
		// The termination message is a file that is empty at the start of each container.
		const signal = "/dev/termination-log"
		f.createDeployment(t, "touchy", "memory-hog", []string{"-mib", "100", "-after", signal})

		pod := f.awaitLowered(t, "touchy")
		if _, err := n.Exec(t, pod, "/nodekit", "cgroups", "write", signal, "go"); err != nil {
			t.Fatal(err)
		}

		awaitLimits(t, n, f.cgroups, n.Await(t, pod, "killed, and back", func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses[0]
			end := s.LastTerminationState.Terminated
			return end != nil && end.Reason == "OOMKilled" && s.State.Running != nil && p.Spec.Containers[0].Resources.Limits.Memory().Value() == 128<<20
		}), 0.4, 128<<20)

		f.eventually(t, "it is held", func(rec *analysisv1alpha1.Recommendation) error {
			if s := rec.Status.Adoption; s == nil || s.Phase != "Held" {
				return fmt.Errorf("%+v", s)
			}

			return nil
		}, "touchy")
	})
}

// startCraned starts craned with the rights of config/rbac, adopting without delay, and returns a client.
func startCraned(t *testing.T, n *node.Node) client.Client {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	c, err := client.New(n.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}

	if err := harness.Install(t.Context(), n.Config, "adoption-test", func(kind string) bool {
		return kind != "MutatingWebhookConfiguration" && kind != "ValidatingWebhookConfiguration"
	}); err != nil {
		t.Fatal(err)
	}

	kubeconfig, err := node.Open(t).Control().KubeconfigFor(t.Context(), "craned", controlplane.ServiceAccount("crane-system", "craned"))
	if err != nil {
		t.Fatal(err)
	}

	binary := filepath.Join(os.Getenv("CRANE_BIN"), "craned")
	if info, err := os.Stat(binary); err != nil || !info.Mode().IsRegular() {
		binary = filepath.Join(t.TempDir(), "craned")
		if err := harness.Build(t.Context(), binary, "craned"); err != nil {
			t.Fatal(err)
		}
	}

	harness.Start(t, 5*time.Minute, binary,
		"--kubeconfig="+kubeconfig, "--prometheus-address=http://127.0.0.1:1", "--controllers=adoption,oom", "--leader-elect=false",
		"--metrics-bind-address="+harness.FreeAddress(t), "--health-probe-bind-address="+harness.FreeAddress(t), "--server-bind-port=0",
		"--adoption-watch=1h", "--adoption-look-interval=300ms", "--adoption-step=0.5", "--adoption-ready-grace=1h", "--adoption-cool-down=1h")

	return c
}

// adoptionFixture is a node with a running craned.
type adoptionFixture struct {
	*node.Node
	cgroups *node.Cgroups
	client  client.Client
}

// createDeployment creates a Deployment of one pod on the node, with a Recommendation of half its size.
func (f adoptionFixture) createDeployment(t *testing.T, name, program string, args []string) {
	t.Helper()

	one := int32(1)
	labels := map[string]string{"app": name}
	pod := f.Pod(name, program, args, node.Resources("100m", "64Mi"), node.Resources("400m", "128Mi"))
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}

	rec := &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name},
		Spec: analysisv1alpha1.RecommendationSpec{
			TargetRef: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: pod.Namespace, Name: name},
			Type:      analysisv1alpha1.AnalysisTypeResource, AdoptionType: analysisv1alpha1.AdoptionTypeAuto,
		},
	}

	for _, o := range []client.Object{d, rec} {
		if err := f.client.Create(t.Context(), o, client.FieldOwner("owner")); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() {
			if err := f.client.Delete(context.WithoutCancel(t.Context()), o, client.PropagationPolicy(metav1.DeletePropagationForeground)); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		})
	}

	before := rec.DeepCopy()
	rec.Status.RecommendedValue = "resourceRequest:\n  containers:\n  - containerName: main\n    target: {cpu: 50m, memory: 32Mi}\n"
	rec.Status.RecommendedInfo = `{"spec":{"template":{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"200m","memory":"64Mi"}}}]}}}}`
	if err := f.client.Status().Patch(t.Context(), rec, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// awaitLowered waits until the pod's cgroups have the recommended limits and returns the pod as first seen.
func (f adoptionFixture) awaitLowered(t *testing.T, name string) *corev1.Pod {
	t.Helper()

	var pod *corev1.Pod
	f.Eventually(t, "a pod that runs", func() error {
		list, err := f.Client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}

		if len(list.Items) != 1 || list.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%d pods, want one that runs", len(list.Items))
		}

		pod = &list.Items[0]
		return nil
	})

	awaitLimits(t, f.Node, f.cgroups, pod, 0.2, 64<<20)
	return pod
}

// eventually polls a Recommendation until check returns nil.
func (f adoptionFixture) eventually(t *testing.T, what string, check func(*analysisv1alpha1.Recommendation) error, name string) {
	t.Helper()

	f.Eventually(t, what, func() error {
		rec := &analysisv1alpha1.Recommendation{}
		if err := f.client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, rec); err != nil {
			return err
		}

		return check(rec)
	})
}
