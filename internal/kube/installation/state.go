// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installation reads the state of the components and objects of Crane in a cluster.
package installation

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/component/shellquote"
	"crane.io/crane/internal/kube/pause"
	"crane.io/crane/pkg/units"
)

// statusReport collects the lines of `crane status`.
type statusReport struct {
	client client.Reader
	// namespace is that of Crane. Objects elsewhere prove nothing, whatever their names and labels are.
	namespace string
	now       time.Time
	checks    []Check
}

func (r *statusReport) add(name string, s Status, detail, advice string) {
	r.checks = append(r.checks, Check{
		Name:   name,
		Status: s,
		Detail: detail,
		Advice: advice,
	})
}

// Read reads the state of all components in the namespace of Crane. A read that is forbidden is a line of its own; other errors end it.
func Read(ctx context.Context, c client.Reader, namespace string, now time.Time) ([]Check, error) {
	r := &statusReport{client: c, namespace: namespace, now: now}
	reads := []struct {
		name string
		add  func(ctx context.Context) error
	}{
		{"components", r.addComponents},
		{"external metrics API", r.addExternalMetrics},
		{"writes", r.addPause},
		{"rules", r.addRules},
		{"recommendations", func(ctx context.Context) error {
			return r.addObjects(ctx, "recommendations", &analysisv1alpha1.RecommendationList{})
		}},
		{"forecasts", func(ctx context.Context) error {
			return r.addObjects(ctx, "forecasts", &predictionv1alpha1.TimeSeriesPredictionList{})
		}},
		{"horizontal autoscalers", func(ctx context.Context) error {
			return r.addObjects(ctx, "horizontal autoscalers", &autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerList{})
		}},
		{"vertical autoscalers", func(ctx context.Context) error {
			return r.addObjects(ctx, "vertical autoscalers", &autoscalingv1alpha1.EffectiveVerticalPodAutoscalerList{})
		}},
	}

	for _, read := range reads {
		// The other lines are worth reading without a right or a kind that is missing.
		err := read.add(ctx)
		switch {
		case apierrors.IsForbidden(err):
			r.add(read.name, Warn, err.Error(), "")
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			r.add(read.name, Off, "the kind is not installed", "")
		case err != nil:
			return r.checks, fmt.Errorf("reading the state of %s: %w", read.name, err)
		}
	}

	return r.checks, nil
}

// ComponentLabel has the name of the component on its Deployment or DaemonSet.
const ComponentLabel = "app.kubernetes.io/name"

// addComponents adds a line for each component.
func (r *statusReport) addComponents(ctx context.Context) error {
	found := map[string]bool{}
	var deployments appsv1.DeploymentList
	var daemons appsv1.DaemonSetList

	names := client.MatchingLabelsSelector{Selector: ComponentSelector()}
	if err := r.client.List(ctx, &deployments, client.InNamespace(r.namespace), names); err != nil {
		return err
	}

	if err := r.client.List(ctx, &daemons, client.InNamespace(r.namespace), names); err != nil {
		return err
	}

	for i := range deployments.Items {
		d := &deployments.Items[i]
		found[d.Labels[ComponentLabel]] = true
		r.addComponent(d, d.Spec.Template.Spec, d.Status.ReadyReplicas, d.Status.UpdatedReplicas, ptr.Deref(d.Spec.Replicas, 1))
	}

	for i := range daemons.Items {
		d := &daemons.Items[i]
		found[d.Labels[ComponentLabel]] = true
		r.addComponent(d, d.Spec.Template.Spec, d.Status.NumberReady, d.Status.UpdatedNumberScheduled, d.Status.DesiredNumberScheduled)
	}

	leader, err := r.leader(ctx, CranedLease)
	if err != nil {
		return err
	}

	switch {
	case leader != "":
		r.add("leader", OK, leader, "")
	case found["craned"]:
		r.add("leader", Warn, "no craned has renewed its lease within "+MaxLeaseAge.String()+": nothing is processed", "see the logs of the pods with the label "+ComponentLabel+"=craned")
	default:
		r.add("leader", Warn, "no craned runs, in namespace "+r.namespace+" or outside with a lease there: nothing is processed", "--craned-namespace names another namespace")
	}

	// A component may run outside the cluster, where it has no workload but other traces.
	for _, name := range components() {
		if found[name] || name == "craned" && leader != "" {
			continue
		}

		outside, err := r.outside(ctx, name)
		if err != nil {
			return err
		}

		if outside != "" {
			r.add(name, OK, "runs outside the cluster: "+outside, "")
		} else {
			r.add(name, Off, "no Deployment or DaemonSet of namespace "+r.namespace+" has the label "+ComponentLabel+"="+name, "")
		}
	}

	return nil
}

// outside returns the evidence that a component without a workload in the cluster runs outside it; empty without any.
func (r *statusReport) outside(ctx context.Context, name string) (string, error) {
	switch name {
	case "crane-scheduler":
		return r.leader(ctx, name) // its configuration names the lease like this
	case "metric-adapter":
		service, problem, err := r.externalMetrics(ctx)
		if err == nil && problem == "" && service == r.namespace+"/"+name {
			return "it serves the external metrics API", nil
		}

		return "", client.IgnoreNotFound(err)
	}

	return "", nil
}

// addComponent adds the line of a Deployment or a DaemonSet with numbers of pods.
func (r *statusReport) addComponent(o client.Object, pod corev1.PodSpec, ready, updated, want int32) {
	name := o.GetLabels()[ComponentLabel]
	image := "no image"
	if len(pod.Containers) > 0 {
		image = pod.Containers[0].Image
	}

	detail := fmt.Sprintf("%s/%s: %d of %d ready, %s", o.GetNamespace(), o.GetName(), ready, want, image[strings.LastIndex(image, "/")+1:])
	switch {
	case want == 0:
		r.add(name, Warn, detail, "it is scaled to zero, or no node is selected")
	case ready < want:
		r.add(name, Warn, detail, shellquote.Command([]string{"kubectl", "describe", "pods", "-n", o.GetNamespace(), "-l", ComponentLabel + "=" + name}))
	case updated < want:
		r.add(name, Warn, detail+fmt.Sprintf(", %d updated", updated), "a roll-out is in progress")
	default:
		r.add(name, OK, detail, "")
	}
}

// leader returns the holder of a lease and its age; empty without a recent one.
func (r *statusReport) leader(ctx context.Context, name string) (string, error) {
	var lease coordinationv1.Lease
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: name}, &lease)
	if err != nil || !Renewed(&lease, r.now) {
		return "", client.IgnoreNotFound(err)
	}

	age := max(r.now.Sub(lease.Spec.RenewTime.Time), 0).Truncate(time.Second)
	return fmt.Sprintf("%s holds the lease %s/%s, renewed %s ago", *lease.Spec.HolderIdentity, lease.Namespace, lease.Name, units.FormatShortDuration(age)), nil
}

// addExternalMetrics adds which service serves external.metrics.k8s.io. Only one can.
func (r *statusReport) addExternalMetrics(ctx context.Context) error {
	const name = "external metrics API"
	service, problem, err := r.externalMetrics(ctx)
	switch {
	case apierrors.IsNotFound(err):
		r.add(name, Off, "not served: autoscalers use forecasts and schedules only with the metric-adapter", "")
	case err != nil:
		return err
	case problem != "":
		r.add(name, Warn, fmt.Sprintf("served by %s, which is not available: %s", service, problem), "")
	default:
		r.add(name, OK, "served by "+service, "")
	}

	return nil
}

// externalMetrics returns the Service of external.metrics.k8s.io as namespace/name, and why it is not available.
func (r *statusReport) externalMetrics(ctx context.Context) (service, problem string, err error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("apiregistration.k8s.io/v1")
	o.SetKind("APIService")

	if err := r.client.Get(ctx, client.ObjectKey{Name: "v1beta1.external.metrics.k8s.io"}, o); err != nil {
		return "", "", err
	}

	namespace, _, _ := unstructured.NestedString(o.Object, "spec", "service", "namespace")
	name, _, _ := unstructured.NestedString(o.Object, "spec", "service", "name")

	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, _ := c.(map[string]any); condition["type"] == "Available" && condition["status"] != "True" {
			problem = fmt.Sprint(condition["message"])
		}
	}

	return namespace + "/" + name, problem, nil
}

// addPause adds whether crane pause has stopped the writes.
func (r *statusReport) addPause(ctx context.Context) error {
	var m corev1.ConfigMap
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: pause.ConfigMapName}, &m)
	if client.IgnoreNotFound(err) != nil {
		return err
	}

	if pause.IsPaused(&m) {
		resume := shellquote.Command([]string{"crane", "resume", "--craned-namespace", m.Namespace})
		r.add("writes", Warn, fmt.Sprintf("paused by ConfigMap %s/%s: %s", m.Namespace, m.Name, m.Data[pause.KeyReason]), resume)

		return nil
	}

	r.add("writes", OK, "not paused", "")
	return nil
}

// addRules adds the rules, and when the last round ended. It warns of each rule that is not ready, as its workloads get no recommendations.
func (r *statusReport) addRules(ctx context.Context) error {
	var list analysisv1alpha1.RecommendationRuleList
	if err := r.client.List(ctx, &list); err != nil {
		return err
	}

	var newest time.Time
	var failing []string
	for i := range list.Items {
		rule := &list.Items[i]
		if at := rule.Status.LastUpdateTime; at != nil && at.After(newest) {
			newest = at.Time
		}
		if !meta.IsStatusConditionTrue(rule.Status.Conditions, "Ready") {
			failing = append(failing, rule.Name)
		}
	}

	detail := ""
	if !newest.IsZero() {
		detail = ", the last round ended " + units.FormatShortDuration(max(r.now.Sub(newest), 0).Truncate(time.Second)) + " ago"
	}

	r.addReadiness("rules", readinessOf(&list), detail, describeRules(failing))
	return nil
}

// addObjects adds how many objects of a kind are ready, and the reasons of the others.
func (r *statusReport) addObjects(ctx context.Context, name string, list client.ObjectList) error {
	if err := r.client.List(ctx, list); err != nil {
		return err
	}

	r.addReadiness(name, readinessOf(list), "", "")
	return nil
}
