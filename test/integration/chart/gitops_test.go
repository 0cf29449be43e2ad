// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/kube/certificates"
)

// calledBy are the kinds of objects into which Crane writes the authority of its certificates.
var calledBy = []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService"}

// called returns the objects of the release of these kinds by name.
func (f *fixture) called() map[string]*unstructured.Unstructured {
	f.Helper()

	out := map[string]*unstructured.Unstructured{}
	for _, o := range f.all() {
		if slices.Contains(calledBy, o.GetKind()) && o.GetLabels()["app.kubernetes.io/part-of"] == "crane" {
			out[nameOf(o)] = o
		}
	}

	return out
}

// distributeAuthorities lets the code of craned and metric-adapter create certificates and write their authorities, and checks that nothing
// else than the fields that the documentation lets Argo CD ignore changes. It returns the authorities by object.
func (f *fixture) distributeAuthorities() map[string]string {
	f.Helper()

	before := f.called()
	f.rotate("craned", certificates.ValidatingWebhooks("crane"), certificates.MutatingWebhooks("crane"), certificates.MutatingWebhooks("crane-pods"))
	f.rotate("metric-adapter", certificates.APIService("v1beta1.external.metrics.k8s.io", namespace, "metric-adapter"),
		certificates.APIService("v1beta1.custom.metrics.k8s.io", namespace, "metric-adapter"),
		certificates.APIService("v1beta2.custom.metrics.k8s.io", namespace, "metric-adapter"))
	after := f.called()

	rules := ignoreRules(f.T)
	if len(after) != 6 || len(rules) != len(calledBy) {
		f.Fatalf("%d objects with an authority, %d rules, want 6 objects and %d rules", len(after), len(rules), len(calledBy))
	}

	trusted := map[string]string{}
	for name, o := range after {
		trusted[name] = authority(o)
		if trusted[name] == "" {
			f.Errorf("%s has no authority, want one", name)
		}
		if cmp.Equal(content(before[name], nil), content(o, nil)) {
			f.Errorf("%s does not change, want its authority to change", name)
		}
		if diff := cmp.Diff(content(before[name], rules), content(o, rules)); diff != "" {
			f.Errorf("%s differs in more than the documented fields, want no other difference:\n%s", name, diff)
		}
	}

	return trusted
}

// rotate runs a component's rotation of certificates until its targets have the authority.
func (f *fixture) rotate(component string, targets ...certificates.Target) {
	f.Helper()

	clients, err := kubernetes.NewForConfig(f.control.Config())
	if err != nil {
		f.Fatal(err)
	}

	rotator, err := certificates.New(certificates.Config{
		Clients: clients, Dynamic: f.dynamic, Namespace: namespace, Secret: component + "-test", Hosts: []string{component + "." + namespace + ".svc"},
		Targets: targets, Manager: component, Lifetimes: certificates.DefaultLifetimes(), Clock: clock.RealClock{},
	})
	if err != nil {
		f.Fatal(err)
	}

	ctx, cancel := context.WithCancel(f.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := rotator.Run(ctx); err != nil {
			f.Error(err)
		}
	})

	f.eventually(component+" distributes its authority", func(context.Context) error {
		for name, o := range f.called() {
			isAPI := o.GetKind() == "APIService"
			if isAPI == (component == "metric-adapter") && authority(o) == "" {
				return fmt.Errorf("%s has none", name)
			}
		}

		return nil
	})

	cancel()
	running.Wait()

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: component + "-test"}}
	if err := f.client.Delete(f.Context(), secret); client.IgnoreNotFound(err) != nil {
		f.Fatal(err)
	}
}

// checkTrusted checks that all objects still have their authorities.
func (f *fixture) checkTrusted(what string, trusted map[string]string) {
	f.Helper()

	have := map[string]string{}
	for name, o := range f.called() {
		have[name] = authority(o)
	}

	if diff := cmp.Diff(trusted, have); diff != "" {
		f.Errorf("%s changes authorities, want none:\n%s", what, diff)
	}
}

// authority returns the bundles of an object, empty if one is missing.
func authority(o *unstructured.Unstructured) string {
	if o.GetKind() == "APIService" {
		bundle, _, _ := unstructured.NestedString(o.Object, "spec", "caBundle")
		return bundle
	}

	webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	var out []string
	for _, w := range webhooks {
		bundle, _, _ := unstructured.NestedString(w.(map[string]any), "clientConfig", "caBundle")
		if bundle == "" {
			return ""
		}

		out = append(out, bundle)
	}

	return strings.Join(out, " ")
}

// ignoreRule is an entry of ignoreDifferences of an Application of Argo CD.
type ignoreRule struct {
	Group             string   `json:"group"`
	Kind              string   `json:"kind"`
	JQPathExpressions []string `json:"jqPathExpressions"`
}

// ignoreRules returns the rules of docs/how-to/install.md for the objects of the chart.
func ignoreRules(t *testing.T) []ignoreRule {
	t.Helper()

	page, err := os.ReadFile(docs + "/how-to/install.md")
	if err != nil {
		t.Fatal(err)
	}

	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllSubmatch(page, -1) {
		var application struct {
			Spec struct {
				IgnoreDifferences []ignoreRule `json:"ignoreDifferences"`
			} `json:"spec"`
		}
		if yaml.Unmarshal(block[1], &application) == nil && len(application.Spec.IgnoreDifferences) > 0 {
			return application.Spec.IgnoreDifferences
		}
	}

	t.Fatal("install.md has no ignoreDifferences, want them")
	return nil
}

// content returns an object without its status and bookkeeping of the API server, and without the fields that rules ignore.
func content(o *unstructured.Unstructured, rules []ignoreRule) map[string]any {
	o = o.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "status")

	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}

	for _, rule := range rules {
		if gvk := o.GroupVersionKind(); rule.Group != gvk.Group || rule.Kind != gvk.Kind {
			continue
		}

		for _, path := range rule.JQPathExpressions {
			removePath(o.Object, strings.Split(strings.TrimPrefix(path, "."), "."))
		}
	}

	return o.Object
}

// removePath removes the fields of a path in jq's notation, in which name[]? are all elements of a list.
func removePath(value any, path []string) {
	object, ok := value.(map[string]any)
	if !ok {
		return
	}

	name, each := strings.CutSuffix(path[0], "[]?")
	switch {
	case each:
		list, _ := object[name].([]any)
		for _, element := range list {
			removePath(element, path[1:])
		}

	case len(path) == 1:
		delete(object, name)
	default:
		removePath(object[name], path[1:])
	}
}
