// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/test/e2e/node"
	"crane.io/crane/test/integration/harness"
)

// manager owns the fields of applied objects.
const manager = "agent-test"

// fixture is a node with what an agent needs of its cluster.
type fixture struct {
	*node.Node
	client client.Client
}

// newFixture starts a node and installs Crane's CRDs and permissions in its cluster.
func newFixture(t testing.TB, o node.Options) fixture {
	t.Helper()

	n := node.Start(t, o)
	if err := harness.Install(t.Context(), n.Config, manager, func(kind string) bool {
		return slices.Contains([]string{
			"CustomResourceDefinition", "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ConfigMap",
		}, kind)
	}); err != nil {
		t.Fatal(err)
	}

	c, err := client.New(n.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}

	return fixture{Node: n, client: c}
}

// newMachineFixture is newFixture for a node in an emulated machine, which short runs skip because it takes minutes.
func newMachineFixture(t *testing.T, o node.Options) fixture {
	t.Helper()

	if testing.Short() {
		t.Skip("an emulated machine takes minutes")
	}

	return newFixture(t, o)
}

// daemonSet returns the DaemonSet of config/crane-agent with the node's image, on this node only, with flags that replace those for
// actions.
func (f fixture) daemonSet(t testing.TB, flags ...string) *appsv1.DaemonSet {
	t.Helper()

	objects, err := manifest.ReadDir(config.Manifests, command)
	if err != nil {
		t.Fatal(err)
	}

	set := &appsv1.DaemonSet{}
	for _, o := range objects {
		if o.GetKind() != "DaemonSet" {
			continue
		}

		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, set); err != nil {
			t.Fatal(err)
		}
	}

	if len(set.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("config/%s has the DaemonSet %+v, want one container", command, set)
	}

	pod := &set.Spec.Template.Spec
	pod.NodeSelector = map[string]string{corev1.LabelHostname: f.Name()}
	c := &pod.Containers[0]
	c.Image = node.Image(command)
	c.ImagePullPolicy = corev1.PullNever

	// A probe that comes too early costs a period.
	c.ReadinessProbe.PeriodSeconds = 1
	c.Args = slices.DeleteFunc(c.Args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		// Rules of these tests fire below the water marks.
		return name == "--dry-run" || name == "--policy-config-path" || slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, name+"=") })
	})

	c.Args = append(c.Args, flags...)
	return set
}

// deployment is an agent that runs as the pod of a DaemonSet.
type deployment struct {
	fixture
	set *appsv1.DaemonSet
	pod *corev1.Pod
}

// deploy runs the agent for the duration of the test and returns when it is Ready.
func (f fixture) deploy(t testing.TB, flags ...string) *deployment {
	t.Helper()
	return f.deploySet(t, f.daemonSet(t, flags...))
}

// deploySet is deploy for a modified DaemonSet.
func (f fixture) deploySet(t testing.TB, set *appsv1.DaemonSet) *deployment {
	t.Helper()

	d := &deployment{fixture: f, set: set}
	set, err := f.Client.AppsV1().DaemonSets(d.set.Namespace).Create(t.Context(), d.set, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating DaemonSet: %v", err)
	}

	d.set = set
	t.Cleanup(func() {
		if t.Failed() && d.pod != nil {
			logs, err := f.Logs(t, d.pod)
			t.Logf("--- %s: %v\n%s", d.pod.Name, err, logs)
		}

		d.remove(t)
	})

	f.Eventually(t, "agent", func() error { return d.find(t) })
	return d
}

// find finds the DaemonSet's pod and returns an error unless it is Ready.
func (d *deployment) find(t testing.TB) error {
	t.Helper()

	selector := metav1.FormatLabelSelector(d.set.Spec.Selector)
	pods, err := d.Client.CoreV1().Pods(d.set.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err
	}

	var have []string
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp != nil {
			continue
		}

		d.pod = p

		if isReady(p) {
			return nil
		}

		have = append(have, fmt.Sprintf("%s: %s %+v", p.Name, p.Status.Phase, p.Status.ContainerStatuses))
	}

	return fmt.Errorf("none of %d pods is Ready: %s", len(pods.Items), strings.Join(have, "\n"))
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// remove deletes the DaemonSet and waits until its pods are gone.
func (d *deployment) remove(t testing.TB) {
	t.Helper()

	ctx := context.WithoutCancel(t.Context())
	if err := client.IgnoreNotFound(d.client.Delete(ctx, d.set.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
		t.Errorf("deleting DaemonSet: %v", err)
		return
	}

	pods, err := d.Client.CoreV1().Pods(d.set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.set.Spec.Selector)})
	if err != nil {
		t.Errorf("deleting DaemonSet: %v", err)
		return
	}

	for i := range pods.Items {
		d.Delete(t, &pods.Items[i])
	}
}

// apply applies objects for the duration of the test.
func (f fixture) apply(t testing.TB, text string) {
	t.Helper()
	t.Cleanup(f.put(t, text))
}

// put applies objects and returns the function that deletes them.
func (f fixture) put(t testing.TB, text string) (remove func()) {
	t.Helper()

	objects, err := manifest.ParseString(text)
	if err != nil {
		t.Fatal(err)
	}

	applier, err := manifest.NewApplier(f.Config, manager)
	if err != nil {
		t.Fatal(err)
	}

	if err := applier.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}

	return func() {
		for _, o := range objects {
			if err := f.client.Delete(context.WithoutCancel(t.Context()), o); client.IgnoreNotFound(err) != nil {
				t.Errorf("deleting %s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
	}
}
