// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/controlplanetest"
	"crane.io/crane/test/integration/harness"
)

// waitTimeout bounds each wait.
const waitTimeout = 3 * time.Minute

// TestLifecycle installs the previous revision of the chart, upgrades, applies it once more, rolls back and uninstalls.
func TestLifecycle(t *testing.T) {
	f := newFixture(t)
	f.createPrometheus()
	f.monitor("default")
	before := f.snapshot()

	f.helm("install", release, f.previousChart(), "--create-namespace", "--values", chart+"/values-full.yaml", "--set", registry)
	if address := f.prometheusArgument(); address != f.discoveredPrometheus() {
		t.Errorf("craned reads %s, want %s as crane doctor finds", address, f.discoveredPrometheus())
	}

	f.awaitRules()
	if f.get("ConfigMap", "v1", "crane-previous") == nil || f.crdTitle() != "previous" {
		t.Error("the previous revision is not installed, want its ConfigMap and its CRDs")
	}

	trusted := f.distributeAuthorities()
	f.changeRule()

	f.upgrade()
	if f.get("ConfigMap", "v1", "crane-previous") != nil {
		t.Error("the upgrade leaves an object that the chart no longer has, want it removed")
	}
	if title := f.crdTitle(); title == "previous" {
		t.Error("the upgrade leaves the previous CRDs, want the new title")
	}

	f.checkTrusted("the upgrade", trusted)
	f.checkRuleChanged()

	// A second application changes nothing.
	settled := f.versions()
	f.upgrade()
	f.compareVersions("a second upgrade", settled)

	f.helm("rollback", release, "1")
	if f.get("ConfigMap", "v1", "crane-previous") == nil || f.crdTitle() != "previous" {
		t.Error("the previous revision is not restored, want its ConfigMap and its CRDs")
	}

	// Nor does that of a GitOps controller, once it has taken over.
	f.apply()
	f.checkTrusted("a server-side apply", trusted)
	settled = f.versions()
	f.apply()
	f.compareVersions("a second server-side apply", settled)

	f.helm("uninstall", release)
	f.checkLeft(before, "CustomResourceDefinition.apiextensions.k8s.io", "RecommendationRule.analysis.crane.io")
}

// TestAdvisoryInstallation checks the rights of craned with values-advisory.yaml as the API server evaluates them, and that nothing is left
// with crds.keep=false.
func TestAdvisoryInstallation(t *testing.T) {
	f := newFixture(t)
	before := f.snapshot()
	f.helm("install", release, chart, "--create-namespace", "--values", chart+"/values-advisory.yaml", "--set", registry, "--set", server,
		"--set", "crds.keep=false")

	for _, right := range []authorizationv1.ResourceAttributes{
		{Group: "apps", Resource: "deployments", Verb: "patch"},
		{Group: "apps", Resource: "deployments", Subresource: "scale", Verb: "update"},
		{Resource: "pods", Subresource: "resize", Verb: "patch"},
		{Resource: "pods", Subresource: "eviction", Verb: "create"},
		{Resource: "nodes", Verb: "patch"},
		{Group: "autoscaling", Resource: "horizontalpodautoscalers", Verb: "create"},
	} {
		if f.mayCraned(right) {
			t.Errorf("craned may %s %s/%s, want no such right", right.Verb, right.Resource, right.Subresource)
		}
	}

	f.eventually("craned may write Recommendations", func(context.Context) error {
		if !f.mayCraned(authorizationv1.ResourceAttributes{Group: "analysis.crane.io", Resource: "recommendations", Verb: "create"}) {
			return errors.New("it may not")
		}

		return nil
	})

	f.helm("uninstall", release)
	f.checkLeft(before)
}

// fixture is an API server without Crane.
type fixture struct {
	*testing.T
	control *controlplane.ControlPlane
	client  client.Client
	dynamic dynamic.Interface
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureWith(t, controlplane.Options{})
}

func newFixtureWith(t *testing.T, options controlplane.Options) *fixture {
	t.Helper()

	control := controlplanetest.ForTest(t, options)
	c, err := harness.NewClient(control.Config())
	if err != nil {
		t.Fatal(err)
	}

	d, err := dynamic.NewForConfig(control.Config())
	if err != nil {
		t.Fatal(err)
	}

	f := &fixture{T: t, control: control, client: c, dynamic: d}
	// The API server creates it after it is ready.
	f.eventually("the Service of the API server exists", func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, &corev1.Service{})
	})

	return f
}

func (f *fixture) helm(args ...string) {
	f.Helper()

	started := time.Now()
	runHelm(f.T, append(args, "--namespace", namespace, "--kubeconfig", f.control.Kubeconfig())...)
	f.Logf("helm %s: %s", args[0], time.Since(started).Round(time.Millisecond))
}

func (f *fixture) upgrade() {
	f.Helper()
	f.helm("upgrade", release, chart, "--values", chart+"/values-full.yaml", "--set", registry)
}

func (f *fixture) eventually(what string, check func(context.Context) error) {
	f.Helper()
	harness.Eventually(f.Context(), f.T, waitTimeout, what, check)
}

// previousChart returns a copy of the chart in which a CRD and a ClusterRole differ, and which has one more object.
func (f *fixture) previousChart() string {
	f.Helper()

	dir := filepath.Join(f.TempDir(), "crane")
	if err := copyTree(dir, chart); err != nil {
		f.Fatal(err)
	}

	f.edit(filepath.Join(dir, "Chart.yaml"), "version: 0.1.0", "version: 0.0.9")
	f.edit(filepath.Join(dir, "files/config/crd/analysis.crane.io_recommendations.yaml"), "openAPIV3Schema:", "openAPIV3Schema:\n        title: previous")
	f.edit(filepath.Join(dir, "files/config/rbac/craned.yaml"), "resources: [analytics]", "resources: [analytics, previous]")

	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: crane-previous, namespace: {{ .Release.Namespace }}}\n"
	if err := os.WriteFile(filepath.Join(dir, "templates/previous.yaml"), []byte(object), 0o600); err != nil {
		f.Fatal(err)
	}

	return dir
}

func (f *fixture) edit(path, text, by string) {
	f.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}

	edited := strings.Replace(string(content), text, by, 1)
	if edited == string(content) {
		f.Fatalf("%s has no %q, want it there to replace", path, text)
	}

	if err := os.WriteFile(path, []byte(edited), 0o600); err != nil {
		f.Fatal(err)
	}
}

// copyTree copies a directory and the directories that links in it name.
func copyTree(to, from string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}

	for _, e := range entries {
		source := filepath.Join(from, e.Name())
		target := filepath.Join(to, e.Name())

		info, err := os.Stat(source)
		if err != nil {
			return err
		}

		if info.IsDir() {
			err = copyTree(target, source)
		} else {
			var content []byte
			if content, err = os.ReadFile(source); err == nil {
				err = os.WriteFile(target, content, fs.FileMode(0o600))
			}
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// get returns an object of Crane's namespace, nil if there is none.
func (f *fixture) get(kind, version, name string) *unstructured.Unstructured {
	f.Helper()

	o := &unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)

	err := f.client.Get(f.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		f.Fatal(err)
	}

	return o
}

// crdTitle returns the title of the schema of Recommendations.
func (f *fixture) crdTitle() string {
	f.Helper()

	crd, err := f.dynamic.Resource(crds).Get(f.Context(), "recommendations.analysis.crane.io", metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}

	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		f.Fatal(err)
	}

	title, _, err := unstructured.NestedString(versions[0].(map[string]any), "schema", "openAPIV3Schema", "title")
	if err != nil {
		f.Fatal(err)
	}

	return title
}

var (
	crds  = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	rules = schema.GroupVersionResource{Group: "analysis.crane.io", Version: "v1alpha1", Resource: "recommendationrules"}
)

const ruleName = "workloads-rule"

func (f *fixture) awaitRules() {
	f.Helper()

	f.eventually("the rules of the chart exist", func(ctx context.Context) error {
		_, err := f.dynamic.Resource(rules).Get(ctx, ruleName, metav1.GetOptions{})
		return err
	})
}

// changeRule changes a rule as a user does.
func (f *fixture) changeRule() {
	f.Helper()

	if _, err := f.dynamic.Resource(rules).Patch(f.Context(), ruleName, types.MergePatchType, []byte(`{"spec":{"runInterval":"3h"}}`), metav1.PatchOptions{}); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) checkRuleChanged() {
	f.Helper()

	rule, err := f.dynamic.Resource(rules).Get(f.Context(), ruleName, metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}

	if interval, _, _ := unstructured.NestedString(rule.Object, "spec", "runInterval"); interval != "3h" {
		f.Errorf("after the upgrade runInterval is %s, want 3h as the user has set it", interval)
	}
}

// apply applies the rendered chart as a GitOps controller does, with a field manager of its own.
func (f *fixture) apply() {
	f.Helper()

	applier, err := manifest.NewApplier(f.control.Config(), "gitops")
	if err != nil {
		f.Fatal(err)
	}

	objects := render(f.T, "--values", chart+"/values-full.yaml", "--no-hooks", "--set", "prometheus.url="+f.discoveredPrometheus())
	if err := applier.Apply(f.Context(), objects...); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) mayCraned(right authorizationv1.ResourceAttributes) bool {
	f.Helper()
	return f.may(namespace, "craned", right)
}

// may reports whether a ServiceAccount has a right.
func (f *fixture) may(namespace, account string, right authorizationv1.ResourceAttributes) bool {
	f.Helper()

	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + namespace + ":" + account, ResourceAttributes: &right,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}}

	if err := f.client.Create(f.Context(), review); err != nil {
		f.Fatal(err)
	}

	return review.Status.Allowed
}

// snapshot returns the names of all objects, except Events and Leases, which come and go.
func (f *fixture) snapshot() map[string]bool {
	f.Helper()

	out := map[string]bool{}
	for _, o := range f.all() {
		out[nameOf(o)] = true
	}

	return out
}

// versions returns the objects with the label of the release, without their times, by name.
func (f *fixture) versions() map[string]string {
	f.Helper()

	out := map[string]string{}
	for _, o := range f.all() {
		if o.GetLabels()["app.kubernetes.io/part-of"] != "crane" || o.GetKind() == "Secret" {
			continue
		}

		unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
		raw, err := json.Marshal(o.Object)
		if err != nil {
			f.Fatal(err)
		}

		out[nameOf(o)] = string(raw)
	}

	if len(out) < 50 {
		f.Fatalf("%d objects, want 50 or more", len(out))
	}

	return out
}

func (f *fixture) compareVersions(what string, before map[string]string) {
	f.Helper()

	if diff := cmp.Diff(before, f.versions()); diff != "" {
		f.Errorf("%s changes objects, want no change:\n%s", what, diff)
	}
}

func (f *fixture) all() []*unstructured.Unstructured {
	f.Helper()

	disco, err := discovery.NewDiscoveryClientForConfig(f.control.Config())
	if err != nil {
		f.Fatal(err)
	}

	lists, err := disco.ServerPreferredResources()
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partial) { // The aggregated APIs have no server.
		f.Fatal(err)
	}

	var out []*unstructured.Unstructured
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			f.Fatal(err)
		}

		for i := range list.APIResources {
			r := &list.APIResources[i]
			if !slices.Contains(r.Verbs, "list") || r.Kind == "Event" || r.Kind == "Lease" || r.Kind == "ComponentStatus" {
				continue
			}

			objects, err := f.dynamic.Resource(gv.WithResource(r.Name)).List(f.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) { // The definition has just been deleted.
				continue
			}
			if err != nil {
				f.Fatalf("listing %s: %v", r.Name, err)
			}

			for j := range objects.Items {
				// The API server makes an APIService for each definition.
				if _, ok := objects.Items[j].GetLabels()["kube-aggregator.kubernetes.io/automanaged"]; !ok {
					out = append(out, &objects.Items[j])
				}
			}
		}
	}

	return out
}

// checkLeft waits until objects of some kinds alone, and the namespace, are left since a snapshot.
func (f *fixture) checkLeft(before map[string]bool, kinds ...string) {
	f.Helper()

	f.eventually("uninstalled", func(context.Context) error {
		left := f.snapshot()
		seen := map[string]bool{}
		maps.DeleteFunc(left, func(name string, _ bool) bool {
			kind, _, _ := strings.Cut(name, " ")
			seen[kind] = true
			return before[name] || slices.Contains(kinds, kind) || name == "Namespace /"+namespace
		})

		for _, kind := range kinds {
			if !seen[kind] {
				f.Errorf("no %s is kept, want one", kind)
			}
		}

		if len(left) > 0 {
			return errors.New("left: " + strings.Join(slices.Sorted(maps.Keys(left)), ", "))
		}

		return nil
	})
}
