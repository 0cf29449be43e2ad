// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestPatches applies crane's recommendations to a cluster in each patch format.
func TestPatches(t *testing.T) {
	s := start(t, "--nodes", "4", "--workloads", "16", "--days", "8")
	t.Run("without the Kubernetes API", func(t *testing.T) { testMetricsOnly(t, s) })
	t.Run("html", func(t *testing.T) { testHTML(t, s) })
	t.Run("json-patch", func(t *testing.T) { testJSONPatch(t, s) })
	t.Run("strategic-merge", func(t *testing.T) { testStrategicMerge(t, s) })
	t.Run("kustomize", func(t *testing.T) { testKustomize(t, s) })
	t.Run("helm-values", func(t *testing.T) { testHelmValues(t, s) })
	t.Run("fail-on", func(t *testing.T) { testFailOn(t, s) })
	t.Run("explain", func(t *testing.T) { testExplain(t, s) })
}

// patchesFor runs crane recommend with a patch format.
func patchesFor(t *testing.T, s *session, output string, args ...string) string {
	t.Helper()

	out, _ := run(t, binary(t, "crane"), append([]string{
		"recommend", "--prometheus", s.prometheus, "--kubeconfig", s.kubeconfig, "-o", output,
	}, args...)...)

	return out
}

// asked maps list/container/requests/resource to the amounts of an object or a patch.
func asked(t *testing.T, object map[string]any) map[string]string {
	t.Helper()

	out := map[string]string{}
	for _, path := range [][]string{{"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}} {
		for _, list := range []string{"containers", "initContainers"} {
			containers, _, err := unstructured.NestedSlice(object, append(path, list)...)
			if err != nil {
				t.Fatal(err)
			}

			for _, c := range containers {
				container := unstructured.Unstructured{Object: c.(map[string]any)}
				for _, kind := range []string{"requests", "limits"} {
					amounts, _, err := unstructured.NestedMap(container.Object, "resources", kind)
					if err != nil {
						t.Fatal(err)
					}

					name, _, _ := unstructured.NestedString(container.Object, "name")
					for resource, amount := range amounts {
						out[strings.Join([]string{list, name, kind, resource}, "/")] = fmt.Sprint(amount)
					}
				}
			}
		}
	}

	return out
}

func (s *session) object(t *testing.T, kind, namespace, name string) map[string]any {
	t.Helper()

	var object map[string]any
	if err := json.Unmarshal([]byte(s.kubectl(t, "get", kind, name, "-n", namespace, "-o", "json")), &object); err != nil {
		t.Fatal(err)
	}

	return object
}

// checkPatched compares a live object with the applied patch.
func checkPatched(t *testing.T, before, after, patch map[string]string) {
	t.Helper()

	if len(patch) == 0 {
		t.Fatal("the patch is empty, want values to change")
	}

	for key, want := range patch {
		got := after[key]
		was := before[key]

		if got == "" || !same(got, want) {
			t.Errorf("%s is %q after the patch, want %s", key, got, want)
		}
		if was != "" && same(was, want) {
			t.Errorf("%s was %s already and is in the patch, want changed values only", key, was)
		}
	}

	for key, was := range before {
		if _, patched := patch[key]; !patched && after[key] != was {
			t.Errorf("%s is %q, want %s as before: it is not in the patch", key, after[key], was)
		}
	}
}

// same reports whether quantities are equal in any notation.
func same(a, b string) bool {
	x := resource.MustParse(a)
	y := resource.MustParse(b)
	return x.Cmp(y) == 0
}

func testJSONPatch(t *testing.T, s *session) {
	type target struct{ Kind, Namespace, Name string }
	var list []struct {
		Target target
		Patch  []struct {
			Op, Path string
			Value    any
		}
	}

	out := patchesFor(t, s, "json-patch", "--kind", "StatefulSet,DaemonSet,CronJob")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}

	var raw []struct{ Patch json.RawMessage }
	if err := json.Unmarshal([]byte(out), &raw); err != nil {
		t.Fatal(err)
	}

	if len(list) < 2 {
		t.Fatalf("patches for %d workloads, want 2 or more:\n%s", len(list), out)
	}

	for i, p := range list {
		file := filepath.Join(t.TempDir(), "patch.json")
		if err := os.WriteFile(file, raw[i].Patch, 0o600); err != nil {
			t.Fatal(err)
		}

		before := asked(t, s.object(t, p.Target.Kind, p.Target.Namespace, p.Target.Name))
		s.kubectl(t, "patch", p.Target.Kind, p.Target.Name, "-n", p.Target.Namespace, "--type", "json", "--patch-file", file)
		after := asked(t, s.object(t, p.Target.Kind, p.Target.Namespace, p.Target.Name))

		patch := map[string]string{}
		container := ""
		for _, o := range p.Patch {
			parts := strings.Split(o.Path, "/")
			if o.Op == "test" {
				container = parts[len(parts)-3] + "/" + fmt.Sprint(o.Value)
				continue
			}

			if amount, ok := o.Value.(string); ok && o.Op == "add" {
				patch[container+"/"+strings.Join(parts[len(parts)-2:], "/")] = amount
			}
		}

		checkPatched(t, before, after, patch)
	}

	t.Logf("%d workloads were patched", len(list))
}

// documents returns the documents of a YAML file.
func documents(t *testing.T, text string) []map[string]any {
	t.Helper()

	var all []map[string]any
	for part := range strings.SplitSeq(text, "\n---\n") {
		var one map[string]any
		if err := yaml.Unmarshal([]byte(part), &one); err != nil {
			t.Fatal(err)
		}

		all = append(all, one)
	}

	return all
}

func testStrategicMerge(t *testing.T, s *session) {
	out := patchesFor(t, s, "strategic-merge", "--kind", "deploy", "-n", "shop")
	file := filepath.Join(t.TempDir(), "patches.yaml")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}

	all := documents(t, out)
	before := make([]map[string]string, len(all))
	name := func(i int) string {
		name, _, _ := unstructured.NestedString(all[i], "metadata", "name")
		return name
	}

	for i := range all {
		before[i] = asked(t, s.object(t, "deployment", "shop", name(i)))
	}

	s.kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", file)
	for i := range all {
		checkPatched(t, before[i], asked(t, s.object(t, "deployment", "shop", name(i))), asked(t, all[i]))
	}
	t.Logf("%d workloads were patched", len(all))
}

// testKustomize includes the component in a kustomization with one of the patched workloads.
func testKustomize(t *testing.T, s *session) {
	component := patchesFor(t, s, "kustomize", "--kind", "deploy", "-n", "payments,search")
	var parsed struct {
		Kind    string
		Patches []struct {
			Target struct{ Namespace, Name string }
			Patch  string
		}
	}

	if err := yaml.Unmarshal([]byte(component), &parsed); err != nil || len(parsed.Patches) < 2 {
		t.Fatalf("parsing the component: %v, want 2 patches or more\n%s", err, component)
	}

	chosen := parsed.Patches[0]
	namespace, name := chosen.Target.Namespace, chosen.Target.Name
	live := s.object(t, "deployment", namespace, name)
	before := asked(t, live)

	manifest, err := yaml.Marshal(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name, "namespace": namespace}, "spec": live["spec"],
	})
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	for path, content := range map[string]string{
		"crane/kustomization.yaml": component,
		"app/deployment.yaml":      string(manifest),
		"app/kustomization.yaml":   "resources: [deployment.yaml]\ncomponents: [../crane]\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	s.kubectl(t, "apply", "-k", filepath.Join(dir, "app"))
	checkPatched(t, before, asked(t, s.object(t, "deployment", namespace, name)), asked(t, documents(t, chosen.Patch)[0]))
}

func testHelmValues(t *testing.T, s *session) {
	var values struct {
		Crane map[string]map[string]map[string]map[string]struct{ Requests map[string]string }
	}

	out := patchesFor(t, s, "helm-values", "-n", "payments,search,data")
	if err := yaml.Unmarshal([]byte(out), &values); err != nil || len(values.Crane) == 0 {
		t.Fatalf("parsing the values: %v, want a section crane\n%s", err, out)
	}

	for namespace, kinds := range values.Crane {
		for kind, workloads := range kinds {
			for name, containers := range workloads {
				for container, r := range containers {
					if len(r.Requests) == 0 {
						t.Errorf("%s/%s/%s/%s has no requests, want some", namespace, kind, name, container)
					}
				}
			}
		}
	}
}

func testFailOn(t *testing.T, s *session) {
	r := execute(t, binary(t, "crane"), "recommend", "--prometheus", s.prometheus, "--kubeconfig", s.kubeconfig, "--fail-on", "over=0%")
	if r.code != 4 || !strings.Contains(r.errOut, "above the recommendation") {
		t.Errorf("--fail-on over=0%%: exit code %d, want 4 with the reason: %s", r.code, r.errOut)
	}

	r = execute(t, binary(t, "crane"), "recommend", "--prometheus", s.prometheus, "--kubeconfig", s.kubeconfig, "--fail-on", "over=1000000%")
	if r.code != 0 {
		t.Errorf("--fail-on over=1000000%%: exit code %d, want 0: %s", r.code, r.errOut)
	}
}

func testExplain(t *testing.T, s *session) {
	out, _ := run(t, binary(t, "crane"), "recommend", "--prometheus", s.prometheus, "--kubeconfig", s.kubeconfig, "--explain", "payments/gateway")
	for _, want := range []string{"payments/Deployment/gateway", "steps from usage to recommendation", "replay: ", "gocrane", "krr-p99", "a month over all pods", "a month over 2 pods", "cores less"} {
		if !strings.Contains(out, want) {
			t.Errorf("the page lacks text, want %q:\n%s", want, out)
		}
	}

	t.Log(out)
}

// priced contains the compared part of the output with and without the Kubernetes API.
type priced struct {
	Workloads []struct {
		Namespace, Kind, Name string
		Saving                struct {
			Monthly    float64
			PricedFrom string
		}
		Containers []struct {
			Name        string
			CPU, Memory struct {
				Current, Recommended struct{ Request struct{ Value float64 } }
			}
		}
	}
	Sources struct {
		Workloads, Nodes, Autoscalers string
		Missing                       []string
	}
}

// testMetricsOnly: kube-state-metrics alone leads to the same results and costs.
func testMetricsOnly(t *testing.T, s *session) {
	read := func(args ...string) (out priced) {
		text, _ := run(t, binary(t, "crane"), append([]string{"recommend", "--prometheus", s.prometheus, "-o", "json", "--kind", "deploy,sts,ds"}, args...)...)
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}

		return out
	}

	amounts := func(p priced) map[string]float64 {
		out := map[string]float64{}
		for _, w := range p.Workloads {
			name := w.Namespace + "/" + w.Kind + "/" + w.Name
			out[name+" saving"] = w.Saving.Monthly
			for _, c := range w.Containers {
				out[name+"/"+c.Name+" cpu now"] = c.CPU.Current.Request.Value
				out[name+"/"+c.Name+" cpu"] = c.CPU.Recommended.Request.Value
				out[name+"/"+c.Name+" memory now"] = c.Memory.Current.Request.Value
				out[name+"/"+c.Name+" memory"] = c.Memory.Recommended.Request.Value
			}

			if w.Saving.PricedFrom != "nodes of its pods" {
				t.Errorf("%s is priced from the %s, want nodes of its pods", name, w.Saving.PricedFrom)
			}
		}

		return out
	}

	byAPI := read("--kubeconfig", s.kubeconfig)
	byMetrics := read()
	if from := byMetrics.Sources; from.Workloads != "kube-state-metrics" || from.Nodes != "kube-state-metrics" || from.Autoscalers != "kube-state-metrics" || len(from.Missing) > 0 {
		t.Errorf("sources %+v, want kube-state-metrics for all and nothing missing", from)
	}

	want := amounts(byAPI)
	got := amounts(byMetrics)
	if len(want) < 50 || len(got) != len(want) {
		t.Errorf("%d amounts by metrics, want %d as by the API, 50 or more", len(got), len(want))
	}

	for name, w := range want {
		// A sample may have been added in between.
		if g, there := got[name]; !there || math.Abs(g-w) > 0.02*math.Abs(w)+0.01 {
			t.Errorf("%s: %v by metrics, want %v as by the API", name, g, w)
		}
	}
}

// testHTML: the page has a replay for each container with one, links within itself only, and no external resources.
func testHTML(t *testing.T, s *session) {
	out, _ := run(t, binary(t, "crane"), "recommend", "--prometheus", s.prometheus, "--kubeconfig", s.kubeconfig, "-n", "payments", "-o", "html")
	if n := strings.Count(out, "<svg "); n < 4 {
		t.Errorf("%d charts, want 4 or more", n)
	}

	for _, banned := range []string{"src=", "http://", "https://", "NaN", "ZgotmplZ"} {
		if strings.Contains(out, banned) {
			t.Errorf("the page has %q, want it absent", banned)
		}
	}

	if all, own := strings.Count(out, "href="), strings.Count(out, `href="#`); all == 0 || all != own {
		t.Errorf("%d links, %d of them within the page, want all within", all, own)
	}
}
