// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestpatch

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	kresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// fixtureDeployment returns a Deployment with an init container, a sidecar and containers with different resource
// fields.
func fixtureDeployment() *appsv1.Deployment {
	always := corev1.ContainerRestartPolicyAlways
	list := func(pairs ...string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			out[corev1.ResourceName(pairs[i])] = kresource.MustParse(pairs[i+1])
		}

		return out
	}

	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.v1", UID: "u"},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{
				{Name: "migrate"},
				{Name: "proxy", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list("cpu", "1", "memory", "1Gi")}},
			},
			Containers: []corev1.Container{
				{Name: "bare"},
				{Name: "storage", Resources: corev1.ResourceRequirements{Requests: list("ephemeral-storage", "1Gi")}},
				{Name: "limited", Resources: corev1.ResourceRequirements{
					Requests: list("cpu", "1", "memory", "1Gi"), Limits: list("cpu", "2", "memory", "1Gi", "nvidia.com/gpu", "1"),
				}},
				{Name: "claims", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}},
				{Name: "young", Resources: corev1.ResourceRequirements{Requests: list("cpu", "1")}},
			},
		}}},
	}
}

// patchFixtureReport recommends 250m and 256Mi for all containers, a limit of 512Mi for the limited one and nothing
// for the young one.
func patchFixtureReport(t *testing.T) *sizereport.Report {
	t.Helper()

	w, err := workload.FromObject(fixtureDeployment(), schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, nil)
	if err != nil {
		t.Fatal(err)
	}

	it := sizereport.Item{Workload: w, Plan: resource.Plan{State: recommend.Ready, Action: recommend.Patch}}
	for _, c := range w.Containers {
		if c.Role == workload.Init {
			continue
		}

		rec := rightsize.Recommendation{Container: c.Name, Current: profile.CurrentResources(c)}
		rec.CPU.Status, rec.Memory.Status = rightsize.Ready, rightsize.Ready
		rec.Target = rightsize.Resources{CPURequest: new(units.MilliCPU(250)), MemoryRequest: new(units.Bytes(256 << 20))}
		switch c.Name {
		case "limited":
			rec.Target.MemoryLimit = new(units.Bytes(512 << 20))
		case "young":
			rec.Target = rightsize.Resources{}
			rec.CPU.Status, rec.Memory.Status = rightsize.Learning, rightsize.NoData
		}

		it.Plan.Containers, it.Usage = append(it.Plan.Containers, rec), append(it.Usage, sizereport.ContainerUsage{})
	}

	return &sizereport.Report{PolicyName: "default", Resources: []metrics.UsageKind{metrics.CPU, metrics.Memory}, Items: []sizereport.Item{it}}
}

// patchedDeployment returns fixtureDeployment after the patch.
func patchedDeployment() *appsv1.Deployment {
	d := fixtureDeployment()
	spec := &d.Spec.Template.Spec
	for _, c := range []*corev1.Container{&spec.InitContainers[1], &spec.Containers[0], &spec.Containers[1], &spec.Containers[2], &spec.Containers[3]} {
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}

		c.Resources.Requests[corev1.ResourceCPU] = kresource.MustParse("250m")
		c.Resources.Requests[corev1.ResourceMemory] = kresource.MustParse("256Mi")
	}

	delete(spec.Containers[2].Resources.Limits, corev1.ResourceCPU)
	spec.Containers[2].Resources.Limits[corev1.ResourceMemory] = kresource.MustParse("512Mi")
	return d
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()

	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}

	return out
}

func checkPatched(t *testing.T, patched []byte) {
	t.Helper()

	var got appsv1.Deployment
	if err := json.Unmarshal(patched, &got); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(mustMarshal(t, patchedDeployment())), string(mustMarshal(t, &got))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func jsonPatchOf(t *testing.T, r *sizereport.Report) []byte {
	t.Helper()

	var list []struct {
		Target patchTarget
		Patch  json.RawMessage
	}

	if err := json.Unmarshal([]byte(renderPatches(t, JSONPatch, r)), &list); err != nil {
		t.Fatal(err)
	}

	if len(list) != 1 || list[0].Target != (patchTarget{"apps", "v1", "Deployment", "web.v1", "shop"}) {
		t.Fatalf("JSON patches = %+v, want one of Deployment shop/web.v1", list)
	}

	return list[0].Patch
}

func TestJSONPatch(t *testing.T) {
	operations := jsonPatchOf(t, patchFixtureReport(t))
	p, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}

	patched, err := p.Apply(mustMarshal(t, fixtureDeployment()))
	if err != nil {
		t.Fatalf("applying the operations: %v, want no error\n%s", err, operations)
	}

	checkPatched(t, patched)
	reordered := fixtureDeployment()
	reordered.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "new"}}, reordered.Spec.Template.Spec.Containers...)
	if _, err := p.Apply(mustMarshal(t, reordered)); err == nil {
		t.Error("applying the patch to a moved container: no error, want one")
	}
}

// TestJSONPatchRequiresContainerOrder checks workloads of kube-state-metrics, which does not export the order.
func TestJSONPatchRequiresContainerOrder(t *testing.T) {
	r := patchFixtureReport(t)
	r.Items[0].Workload.UID = ""
	var out, errOut bytes.Buffer
	if err := WriteJSONPatch(&out, &errOut, r); err != nil {
		t.Fatal(err)
	}

	if strings.TrimSpace(out.String()) != "[]" || !strings.Contains(errOut.String(), "order of its containers") {
		t.Errorf("WriteJSONPatch without the order = %s, notes %s, want no patch and the reason", out.String(), errOut.String())
	}
}

func TestStrategicMerge(t *testing.T) {
	out := renderPatches(t, StrategicMerge, patchFixtureReport(t))
	checkGolden(t, "patch.strategic-merge", []byte(out))

	p, err := yaml.YAMLToJSON([]byte(out))
	if err != nil {
		t.Fatal(err)
	}

	patched, err := strategicpatch.StrategicMergePatch(mustMarshal(t, fixtureDeployment()), p, appsv1.Deployment{})
	if err != nil {
		t.Fatal(err)
	}

	checkPatched(t, patched)
}

func TestPatchFormats(t *testing.T) {
	for _, output := range []string{Kustomize, JSONPatch, HelmValues} {
		checkGolden(t, "patch."+output, []byte(renderPatches(t, output, patchFixtureReport(t))))
	}
}

func TestSkippedPatches(t *testing.T) {
	for _, c := range []struct{ apiVersion, kind, want string }{
		{"v1", "Pod", "without owner"},
		{"apps/v1", "ReplicaSet", "does not replace"},
		{"batch/v1", "Job", "is immutable"},
		{"argoproj.io/v1alpha1", "Rollout", "is unknown"},
		{"", "Series", "a file is not a workload"},
		{"", "Deployment", "is unknown"},
	} {
		r := patchFixtureReport(t)
		r.Items[0].Workload.APIVersion, r.Items[0].Workload.Kind = c.apiVersion, c.kind

		patches, skipped := patchesOf(r, false)
		if len(patches) != 0 || len(skipped) != 1 || !strings.Contains(skipped[0], c.want) {
			t.Errorf("patchesOf a %s = %v, skipped %v, want none and the reason %q", c.kind, patches, skipped, c.want)
		}
	}

	r := patchFixtureReport(t)
	r.Items[0].Workload.APIVersion, r.Items[0].Workload.Kind = "batch/v1", "CronJob"
	if out := renderPatches(t, StrategicMerge, r); !strings.Contains(out, "jobTemplate:\n    spec:\n      template:") {
		t.Errorf("strategic merge of a CronJob lacks the path of its job template, want it in\n%s", out)
	}
}

// TestNothingToPatch checks that each format is valid without changes.
func TestNothingToPatch(t *testing.T) {
	for _, output := range Formats() {
		r := patchFixtureReport(t)
		for i := range r.Items[0].Plan.Containers {
			c := &r.Items[0].Plan.Containers[i]
			c.Target = c.Current
		}

		var out, errOut bytes.Buffer
		if err := rendererOf(output)(&out, &errOut, r); err != nil || strings.Contains(out.String(), "web") {
			t.Errorf("%s without changes: %v, want no workload in\n%s", output, err, out.String())
		}

		var v any
		if err := yaml.Unmarshal(out.Bytes(), &v); err != nil || !strings.Contains(errOut.String(), "Nothing to patch") {
			t.Errorf("%s without changes: %v, want valid YAML and a note, got %s", output, err, errOut.String())
		}
	}
}

// rendererOf returns the renderer of a format.
func rendererOf(format string) func(out, notes io.Writer, r *sizereport.Report) error {
	return map[string]func(out, notes io.Writer, r *sizereport.Report) error{
		Kustomize:      WriteKustomize,
		StrategicMerge: WriteStrategicMerge,
		JSONPatch:      WriteJSONPatch,
		HelmValues:     WriteHelmValues,
	}[format]
}

// renderPatches returns the patches of a report in a format.
func renderPatches(t *testing.T, format string, r *sizereport.Report) string {
	t.Helper()

	var out, notes bytes.Buffer
	if err := rendererOf(format)(&out, &notes, r); err != nil {
		t.Fatalf("rendering %s: %v", format, err)
	}

	return out.String()
}

var update = flag.Bool("update", false, "rewrite the golden files")

// checkGolden compares got with a file of testdata.
func checkGolden(t *testing.T, name string, got []byte) {
	t.Helper()

	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// TestPatch_Defaults checks patches of a container whose requests or limits are defaults, which its template does not have.
func TestPatch_Defaults(t *testing.T) {
	cpu := func(request, limit int64) rightsize.Resources {
		out := rightsize.Resources{CPURequest: new(units.MilliCPU(request))}
		if limit > 0 {
			out.CPULimit = new(units.MilliCPU(limit))
		}

		return out
	}

	for _, test := range []struct {
		name            string
		declared        workload.Declared
		current, target rightsize.Resources
		want            string
	}{
		{"a limit of a LimitRange", workload.Declared{}, cpu(2000, 2000), cpu(300, 0), `{"requests":{"cpu":"300m"}}`},
		{"a limit of the template", workload.Declared{CPULimit: true}, cpu(2000, 2000), cpu(300, 0), `{"limits":{"cpu":null},"requests":{"cpu":"300m"}}`},
		{"another limit alone", workload.Declared{CPULimit: true}, cpu(2000, 2000), cpu(2000, 4000), `{"limits":{"cpu":"4"},"requests":{"cpu":"2"}}`},
		{"another limit beside a request", workload.Declared{CPURequest: true, CPULimit: true}, cpu(2000, 2000), cpu(2000, 4000), `{"limits":{"cpu":"4"}}`},
	} {
		rec := rightsize.Recommendation{Container: "app", Current: test.current, Target: test.target}
		rec.CPU.Status = rightsize.Ready
		w := workload.Workload{UID: "uid", Containers: []workload.Container{{Name: "app", Role: workload.App, Declared: test.declared}}}
		got, _ := newContainerPatch(w, rec)
		if text := string(mustMarshal(t, got.resources())); text != test.want {
			t.Errorf("%s: resources of newContainerPatch = %s, want %s", test.name, text, test.want)
		}
	}
}
