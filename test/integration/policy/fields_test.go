// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
)

// evaluator evaluates the validations of a policy.
type evaluator struct {
	t      *testing.T
	policy admissionregistrationv1.ValidatingAdmissionPolicy
	env    *cel.Env
}

func newEvaluator(t *testing.T, name string) evaluator {
	t.Helper()

	var objects []*unstructured.Unstructured
	for _, dir := range []string{"policy", "rbac"} {
		read, err := manifest.ReadDir(config.Manifests, dir)
		if err != nil {
			t.Fatal(err)
		}

		objects = append(objects, read...)
	}

	inPlace, err := manifest.ReadDir(config.Components, "components/replace-kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}

	objects = append(objects, inPlace...)

	e := evaluator{t: t}
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetName() == name && strings.HasSuffix(o.GetKind(), "Policy")
	})
	if at < 0 {
		t.Fatalf("no policy %s, want it", name)
	}

	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[at].Object, &e.policy); err != nil {
		t.Fatal(err)
	}

	var options []cel.EnvOption
	for _, name := range []string{"object", "oldObject", "request", "namespaceObject", "variables"} {
		options = append(options, cel.Variable(name, cel.DynType))
	}

	e.env, err = cel.NewEnv(options...)
	if err != nil {
		t.Fatal(err)
	}

	return e
}

func (e evaluator) evaluate(expression string, input map[string]any) any {
	e.t.Helper()

	ast, issues := e.env.Compile(expression)
	if issues.Err() != nil {
		e.t.Fatalf("compiling %s: %v", expression, issues.Err())
	}

	program, err := e.env.Program(ast)
	if err != nil {
		e.t.Fatal(err)
	}

	out, _, err := program.Eval(input)
	if err != nil { // The failure policy refuses.
		return err
	}

	return out.Value()
}

// allows reports whether all validations accept a change through a subresource, empty for the object itself.
func (e evaluator) allows(subResource string, object, oldObject map[string]any) bool {
	e.t.Helper()

	variables := map[string]any{}
	input := map[string]any{
		"object": object, "oldObject": oldObject, "variables": variables,
		"request": map[string]any{"operation": "UPDATE", "namespace": "shop", "subResource": subResource}, "namespaceObject": map[string]any{"metadata": map[string]any{}},
	}

	for _, v := range e.policy.Spec.Variables {
		variables[v.Name] = e.evaluate(v.Expression, input)
	}

	for _, v := range e.policy.Spec.Validations {
		if e.evaluate(v.Expression, input) != true {
			return false
		}
	}

	return true
}

// fieldsOf returns the JSON names of the fields of a struct, those of inlined structs included.
func fieldsOf(of reflect.Type) []string {
	var out []string
	for f := range of.Fields() {
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case strings.Contains(rest, "inline"):
			out = append(out, fieldsOf(f.Type)...)
		case name != "" && name != "-":
			out = append(out, name)
		}
	}

	return out
}

// TestEveryFieldIsGuarded sets each field that the API types have, one after the other. A field that a new version of the API adds is tried as
// well: craned may change the few that are listed here.
func TestEveryFieldIsGuarded(t *testing.T) {
	deployment := func(kind string) func() map[string]any {
		return func() map[string]any {
			template := map[string]any{
				"metadata": map[string]any{},
				"spec": map[string]any{
					"containers":     []any{map[string]any{"name": "app", "resources": map[string]any{}}},
					"initContainers": []any{map[string]any{"name": "init", "resources": map[string]any{}}},
				},
			}

			spec := map[string]any{"template": template}
			if kind == "CronJob" {
				spec = map[string]any{"jobTemplate": map[string]any{"metadata": map[string]any{}, "spec": spec}}
			}

			return map[string]any{"kind": kind, "metadata": map[string]any{"name": "x"}, "spec": spec}
		}
	}

	node := func() map[string]any {
		return map[string]any{"kind": "Node", "metadata": map[string]any{"name": "x"}, "spec": map[string]any{"podCIDR": "x"}}
	}
	webhooks := func(kind string) func() map[string]any {
		return func() map[string]any {
			return map[string]any{"kind": kind, "metadata": map[string]any{"name": "crane"}, "webhooks": []any{
				map[string]any{"name": "first", "clientConfig": map[string]any{}}, map[string]any{"name": "second", "clientConfig": map[string]any{}},
			}}
		}
	}

	apiService := func() map[string]any {
		return map[string]any{"kind": "APIService", "metadata": map[string]any{"name": "x"}, "spec": map[string]any{
			"service": map[string]any{"namespace": "crane-system", "name": "metric-adapter"},
		}}
	}

	pod := func() map[string]any {
		return map[string]any{
			"kind": "Pod", "metadata": map[string]any{"name": "x"}, "spec": map[string]any{"priority": 0}, "status": map[string]any{"startTime": "x"},
		}
	}

	const schedulerPods, clusterSchedulerPods = "crane-scheduler-pods", "crane-kube-scheduler-pods"
	const mutating, validating = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
	const workloads, nodes, webhookConfigurations, apiServices = "crane-craned-workloads", "crane-craned-nodes", "crane-craned-webhooks", "crane-metric-adapter-apiservices"
	versioning := []string{"managedFields", "resourceVersion", "generation"}

	at := func(path ...any) func(map[string]any) map[string]any {
		return func(o map[string]any) map[string]any {
			var current any = o
			for _, step := range path {
				switch s := step.(type) {
				case string:
					current = current.(map[string]any)[s] //nolint:forcetypeassert // a wrong path is an error of the test
				case int:
					current = current.([]any)[s] //nolint:forcetypeassert // a wrong path is an error of the test
				}
			}

			return current.(map[string]any) //nolint:forcetypeassert // a wrong path is an error of the test
		}
	}

	for _, c := range []struct {
		policy string
		object func() map[string]any
		at     func(map[string]any) map[string]any
		of     any
		// allowed are the fields that may change; opaque ones hold lists or objects that other cases look into.
		allowed, opaque []string
		subResource     string
	}{
		{workloads, deployment("Deployment"), at("metadata"), metav1.ObjectMeta{}, versioning, []string{"annotations"}, ""},
		{workloads, deployment("Deployment"), at("spec"), appsv1.DeploymentSpec{}, nil, []string{"template"}, ""},
		{workloads, deployment("StatefulSet"), at("spec"), appsv1.StatefulSetSpec{}, nil, []string{"template"}, ""},
		{workloads, deployment("DaemonSet"), at("spec"), appsv1.DaemonSetSpec{}, nil, []string{"template"}, ""},
		{workloads, deployment("CronJob"), at("spec"), batchv1.CronJobSpec{}, nil, []string{"jobTemplate"}, ""},
		{workloads, deployment("CronJob"), at("spec", "jobTemplate"), batchv1.JobTemplateSpec{}, nil, []string{"spec"}, ""},
		{workloads, deployment("CronJob"), at("spec", "jobTemplate", "spec"), batchv1.JobSpec{}, nil, []string{"template"}, ""},
		{workloads, deployment("CronJob"), at("spec", "jobTemplate", "spec", "template", "spec"), corev1.PodSpec{}, nil, []string{"containers", "initContainers"}, ""},
		{workloads, deployment("Deployment"), at("spec", "template", "metadata"), metav1.ObjectMeta{}, nil, nil, ""},
		{workloads, deployment("Deployment"), at("spec", "template", "spec"), corev1.PodSpec{}, nil, []string{"containers", "initContainers"}, ""},
		{workloads, deployment("Deployment"), at("spec", "template", "spec", "containers", 0), corev1.Container{}, nil, []string{"resources"}, ""},
		{workloads, deployment("Deployment"), at("spec", "template", "spec", "initContainers", 0), corev1.Container{}, nil, []string{"resources"}, ""},
		{workloads, deployment("Deployment"), at("spec", "template", "spec", "containers", 0, "resources"), corev1.ResourceRequirements{}, []string{"requests", "limits"}, nil, ""},
		{workloads, deployment("Deployment"), at("spec", "template", "spec", "initContainers", 0, "resources"), corev1.ResourceRequirements{}, []string{"requests", "limits"}, nil, ""},
		{schedulerPods, pod, at("metadata"), metav1.ObjectMeta{}, versioning, []string{"annotations"}, ""},
		{schedulerPods, pod, at("spec"), corev1.PodSpec{}, nil, nil, ""},
		{schedulerPods, pod, at("metadata"), metav1.ObjectMeta{}, versioning, []string{"annotations"}, "status"},
		{schedulerPods, pod, at("spec"), corev1.PodSpec{}, nil, nil, "status"},
		{schedulerPods, pod, at("status"), corev1.PodStatus{}, []string{"nominatedNodeName", "extendedResourceClaimStatus"}, []string{"conditions"}, "status"},
		{clusterSchedulerPods, pod, at("metadata"), metav1.ObjectMeta{}, versioning, []string{"annotations"}, ""},
		{clusterSchedulerPods, pod, at("spec"), corev1.PodSpec{}, nil, nil, ""},
		{nodes, node, at("metadata"), metav1.ObjectMeta{}, versioning, []string{"annotations"}, ""},
		{nodes, node, at("spec"), corev1.NodeSpec{}, nil, nil, ""},
		{webhookConfigurations, webhooks(mutating), at(), admissionregistrationv1.MutatingWebhookConfiguration{}, nil, []string{"metadata", "webhooks"}, ""},
		{webhookConfigurations, webhooks(mutating), at("metadata"), metav1.ObjectMeta{}, versioning, nil, ""},
		{webhookConfigurations, webhooks(mutating), at("webhooks", 1), admissionregistrationv1.MutatingWebhook{}, nil, []string{"clientConfig"}, ""},
		{webhookConfigurations, webhooks(validating), at("webhooks", 0), admissionregistrationv1.ValidatingWebhook{}, nil, []string{"clientConfig"}, ""},
		{webhookConfigurations, webhooks(validating), at("webhooks", 1, "clientConfig"), admissionregistrationv1.WebhookClientConfig{}, []string{"caBundle"}, nil, ""},
		{apiServices, apiService, at("metadata"), metav1.ObjectMeta{}, versioning, nil, ""},
		{apiServices, apiService, at("spec"), apiregistrationv1.APIServiceSpec{}, []string{"caBundle"}, []string{"insecureSkipTLSVerify"}, ""},
	} {
		e := newEvaluator(t, c.policy)
		if !e.allows(c.subResource, c.object(), c.object()) {
			t.Fatalf("%s refuses a write without a change, want it allowed", c.policy)
		}

		for _, field := range append(fieldsOf(reflect.TypeOf(c.of)), "aFieldOfALaterVersion") {
			if slices.Contains(c.opaque, field) {
				continue
			}

			object := c.object()
			c.at(object)[field] = "changed"

			name := fmt.Sprintf("%s: %s of %s %T", c.policy, field, object["kind"], c.of)
			if got, want := e.allows(c.subResource, object, c.object()), slices.Contains(c.allowed, field); got != want {
				t.Errorf("%s set: allowed %v, want %v", name, got, want)
			}
			if got, want := e.allows(c.subResource, c.object(), object), slices.Contains(c.allowed, field); got != want {
				t.Errorf("%s removed: allowed %v, want %v", name, got, want)
			}
		}
	}
}
