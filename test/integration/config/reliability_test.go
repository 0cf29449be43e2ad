// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/controlplanetest"
	"crane.io/crane/test/integration/harness"
)

const (
	waitTimeout = 2 * time.Minute
	// startBudget is the time that a container has for its start before the kubelet restarts it.
	startBudget = 3 * time.Minute
)

// apply applies the objects of config/ of these kinds.
func apply(t *testing.T, control *controlplane.ControlPlane, kinds ...string) {
	t.Helper()

	applier, err := manifest.NewApplier(control.Config(), "config-test")
	if err != nil {
		t.Fatal(err)
	}

	objects := slices.DeleteFunc(manifests(t), func(o *unstructured.Unstructured) bool { return !slices.Contains(kinds, o.GetKind()) })
	if err := applier.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
}

// TestAgentsHaveTheirPriorityLevel checks that a real API server classifies the requests of agents, and of no other account of Crane, by the
// FlowSchema of config/, and serves them at its priority level.
func TestAgentsHaveTheirPriorityLevel(t *testing.T) {
	control := controlplanetest.ForTest(t, controlplane.Options{})
	apply(t, control, "Namespace", "ServiceAccount", "FlowSchema", "PriorityLevelConfiguration")

	c, err := harness.NewClient(control.Config())
	if err != nil {
		t.Fatal(err)
	}

	schema := &flowcontrolv1.FlowSchema{}
	level := &flowcontrolv1.PriorityLevelConfiguration{}
	for _, o := range []client.Object{schema, level} {
		if err := c.Get(t.Context(), client.ObjectKey{Name: "crane-agents"}, o); err != nil {
			t.Fatal(err)
		}
	}

	want := [2]string{string(schema.UID), string(level.UID)}
	harness.Eventually(t.Context(), t, waitTimeout, "requests of agents have their flow schema", func(context.Context) error {
		if got := classify(t, control, "crane-agent"); got != want {
			return fmt.Errorf("flow schema and priority level are %v, want %v", got, want)
		}

		return nil
	})

	for _, account := range []string{"craned", "metric-adapter", "crane-scheduler"} {
		if got := classify(t, control, account); got[0] == want[0] || got[1] == want[1] || got[0] == "" {
			t.Errorf("requests of %s have flow schema and priority level %v, want other ones than agents, %v", account, got, want)
		}
	}
}

// classify sends a request of an account of Crane and returns the UIDs of the flow schema and of the priority level in the answer.
func classify(t *testing.T, control *controlplane.ControlPlane, account string) [2]string {
	t.Helper()

	config, err := control.ConfigFor(t.Context(), controlplane.ServiceAccount("crane-system", account))
	if err != nil {
		t.Fatal(err)
	}

	sender, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/nodes", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	response, err := sender.Do(request)
	if err != nil {
		t.Fatal(err)
	}

	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}

	return [2]string{
		response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID),
		response.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID),
	}
}

// TestLastReadyReplicaIsNotEvicted checks with a real disruption controller that of the two replicas of each Deployment of config/ one may be
// evicted, that the last ready one may not, and that one which is not ready may even if no other is, so that it does not block the drain of a
// node.
func TestLastReadyReplicaIsNotEvicted(t *testing.T) {
	control := controlplanetest.ForTest(t, controlplane.Options{Components: []controlplane.Component{controlplane.ControllerManager}})
	apply(t, control, "Namespace", "ServiceAccount", "Deployment", "PodDisruptionBudget")

	c, err := harness.NewClient(control.Config())
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"craned", "metric-adapter", "crane-scheduler"} {
		t.Run(name, func(t *testing.T) {
			var pods []corev1.Pod
			harness.Eventually(t.Context(), t, waitTimeout, "two pods", func(ctx context.Context) error {
				var list corev1.PodList
				err := c.List(ctx, &list, client.InNamespace("crane-system"), client.MatchingLabels{"app.kubernetes.io/name": name})
				if pods = list.Items; err == nil && len(pods) != 2 {
					err = fmt.Errorf("%d pods", len(pods))
				}

				return err
			})

			setReady(t, c, &pods[0], corev1.ConditionTrue)
			setReady(t, c, &pods[1], corev1.ConditionTrue)
			awaitAllowed(t, c, name, 2, 1)
			setReady(t, c, &pods[1], corev1.ConditionFalse)
			awaitAllowed(t, c, name, 1, 0)

			err := c.SubResource("eviction").Create(t.Context(), &pods[0], &policyv1.Eviction{})
			if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
				t.Errorf("evicting the last ready replica: %v", err)
			}

			setReady(t, c, &pods[0], corev1.ConditionFalse)
			awaitAllowed(t, c, name, 0, 0)

			if err := c.SubResource("eviction").Create(t.Context(), &pods[1], &policyv1.Eviction{}); err != nil {
				t.Errorf("evicting a replica that is not ready: %v", err)
			}
		})
	}
}

// setReady writes the status of a running pod, as a kubelet does.
func setReady(t *testing.T, c client.Client, pod *corev1.Pod, ready corev1.ConditionStatus) {
	t.Helper()

	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	if err := c.Status().Patch(t.Context(), pod, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// awaitAllowed waits until the disruption controller counts these healthy pods and allows these disruptions.
func awaitAllowed(t *testing.T, c client.Client, name string, healthy, allowed int32) {
	t.Helper()

	harness.Eventually(t.Context(), t, waitTimeout, fmt.Sprintf("%d healthy pods, %d disruptions allowed", healthy, allowed), func(ctx context.Context) error {
		budget := &policyv1.PodDisruptionBudget{}
		err := c.Get(ctx, client.ObjectKey{Namespace: "crane-system", Name: name}, budget)
		s := budget.Status
		if err == nil && (s.CurrentHealthy != healthy || s.DisruptionsAllowed != allowed || s.ExpectedPods != 2) {
			err = fmt.Errorf("status %+v", s)
		}

		return err
	})
}

// TestStartBudget checks that the kubelet gives each container three minutes for its start before it restarts it, and that the probe which
// decides about that is the one that decides about a restart later: liveness probes begin after the first success of the startup probe.
func TestStartBudget(t *testing.T) {
	dashboard, err := manifest.ReadDir(config.Components, "components/dashboard")
	if err != nil {
		t.Fatal(err)
	}

	checked := 0
	for _, o := range append(manifests(t), dashboard...) {
		var template corev1.PodTemplateSpec
		switch o.GetKind() {
		case "Deployment":
			template = convert[appsv1.Deployment](t, o).Spec.Template
		case "DaemonSet":
			template = convert[appsv1.DaemonSet](t, o).Spec.Template
		default:
			continue
		}

		for _, container := range template.Spec.Containers {
			if err := checkStartBudget(container); err != nil {
				t.Errorf("container %s of %s %s: %v", container.Name, o.GetKind(), o.GetName(), err)
			}
			checked++
		}
	}

	if checked < 5 {
		t.Errorf("%d containers, want at least craned, metric-adapter, crane-scheduler, crane-agent and crane-dashboard", checked)
	}
}

// TestReplicasAreSpread checks that the replicas of each Deployment go to different nodes where they can, and that pods of Crane are scheduled
// before those of users and not preempted for them.
func TestReplicasAreSpread(t *testing.T) {
	deployments := 0
	for _, o := range manifests(t) {
		switch o.GetKind() {
		case "Deployment":
			d := convert[appsv1.Deployment](t, o)
			deployments++

			if d.Spec.Replicas == nil || *d.Spec.Replicas != 2 {
				t.Errorf("%s has %v replicas, want 2", d.Name, d.Spec.Replicas)
			}

			want := []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: d.Spec.Selector,
			}}

			if got := d.Spec.Template.Spec.TopologySpreadConstraints; !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%s: topology spread constraints %+v, want %+v", d.Name, got, want)
			}
			if got := d.Spec.Template.Spec.PriorityClassName; got != "system-cluster-critical" {
				t.Errorf("%s has priority class %q, want system-cluster-critical", d.Name, got)
			}

		case "DaemonSet":
			if got := convert[appsv1.DaemonSet](t, o).Spec.Template.Spec.PriorityClassName; got != "system-node-critical" {
				t.Errorf("DaemonSet %s has priority class %q, want system-node-critical", o.GetName(), got)
			}
		}
	}

	if deployments != 3 {
		t.Errorf("%d Deployments, want craned, metric-adapter and crane-scheduler", deployments)
	}
}

func checkStartBudget(c corev1.Container) error {
	if c.StartupProbe == nil || c.LivenessProbe == nil {
		return errors.New("it has no startup probe or no liveness probe")
	}

	if c.StartupProbe.HTTPGet == nil || c.LivenessProbe.HTTPGet == nil || !equality.Semantic.DeepEqual(c.StartupProbe.HTTPGet, c.LivenessProbe.HTTPGet) {
		return errors.New("startup and liveness probes read different pages")
	}

	// The kubelet's defaults are a period of ten seconds and three failures.
	period, failures := c.StartupProbe.PeriodSeconds, c.StartupProbe.FailureThreshold
	if got := time.Duration(period*failures) * time.Second; got != startBudget {
		return fmt.Errorf("it has %s for its start, want %s", got, startBudget)
	}

	return nil
}
