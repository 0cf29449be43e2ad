// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/cli"
	"crane.io/crane/pkg/adoption"
)

// crane runs crane adopt as administrator and checks its exit code.
func crane(t *testing.T, code int, args ...string) (out, errOut string) {
	t.Helper()

	var stdout, stderr bytes.Buffer
	if got := cli.Main(append([]string{"crane", "adopt", "--kubeconfig", control.Kubeconfig()}, args...), strings.NewReader(""), &stdout, &stderr); got != code {
		t.Fatalf("crane adopt %v: exit code %d, want %d\n%s%s", args, got, code, stdout.String(), stderr.String())
	}

	return stdout.String(), stderr.String()
}

// dryRun is the output of a dry run.
type dryRun struct {
	Adoptions []struct {
		Recommendation, Target, Phase, Refused, Message string
		Remarks                                         []string
		Requests                                        []struct {
			Object, Patch, FieldManager, Why string
			Force                            bool
			Body                             json.RawMessage
		}
	}
}

// runDry runs crane adopt --dry-run with the settings of startCraned.
func runDry(t *testing.T, args ...string) dryRun {
	t.Helper()

	out, _ := crane(t, 0, append(append([]string{"--dry-run", "-o", "json"}, args...), fastSettings()...)...)
	var p dryRun
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatalf("parsing the dry run: %v in %s", err, out)
	}

	return p
}

// testAdoptCommand checks that a dry run writes nothing, and that its requests are those that craned sends afterward.
func testAdoptCommand(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 4)
	rec := f.recommend("web", analysisv1alpha1.AdoptionTypeStatus, "700m", "512Mi")
	before := rec.ResourceVersion
	p := runDry(t, "web", "-n", f.Name)
	f.checkUntouched("web")

	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(rec), rec); err != nil || rec.ResourceVersion != before {
		t.Errorf("the recommendation was written: %v", err)
	}
	if len(p.Adoptions) != 1 || len(p.Adoptions[0].Requests) != 3 || !strings.HasPrefix(p.Adoptions[0].Message, "lowering, step 1") {
		t.Fatalf("dry run %+v, want one adoption, lowering in step 1 with 3 requests", p)
	}

	written := p.Adoptions[0].Requests[0]
	var deployment metav1.PartialObjectMetadata
	if err := json.Unmarshal(written.Body, &deployment); err != nil {
		t.Fatal(err)
	}

	planned, err := adoption.ParseState(deployment.Annotations[analysisv1alpha1.AnnotationAdoption])
	if err != nil || written.Object != "deployments/web" || !written.Force || written.FieldManager != "craned-adoption-resource-state" || deployment.ResourceVersion == "" {
		t.Fatalf("the first request is %+v, %v, want a forced apply of the state to deployments/web", written, err)
	}

	resized := map[string]string{}
	for _, r := range p.Adoptions[0].Requests[1:] {
		var pod corev1.Pod
		if err := json.Unmarshal(r.Body, &pod); err != nil || r.FieldManager != "craned-adoption-resource" || r.Patch != "Apply" || r.Object != "pods/"+pod.Name+"/resize" || pod.ResourceVersion == "" {
			t.Fatalf("request %+v, %v, want an apply to the resize subresource of the pod", r, err)
		}

		resized[string(pod.UID)] = pod.Spec.Containers[0].Resources.Requests.Cpu().String()
	}

	// Without a name, the command covers all Recommendations of the namespace.
	table, _ := crane(t, 0, append([]string{"--dry-run", "-n", f.Name}, fastSettings()...)...)
	if !containsAll(table, f.Name+"/web for Deployment "+f.Name+"/web (Resource): lowering, step 1", "2. pods/web-", "from app: cpu 1, memory 512Mi to app: cpu 700m", `"cpu":"700m"`) {
		t.Errorf("dry run of the namespace:\n%s\nwant step 1 of web to 700m of CPU", table)
	}

	asYAML, _ := crane(t, 0, append([]string{"deployment/web", "--dry-run", "-n", f.Name, "-o", "yaml"}, fastSettings()...)...)
	var again dryRun
	if err := yaml.Unmarshal([]byte(asYAML), &again); err != nil || len(again.Adoptions) != 1 || len(again.Adoptions[0].Requests) != 3 {
		t.Errorf("dry run as YAML: %v, want one adoption with 3 requests: %s", err, asYAML)
	}

	if out, _ := crane(t, 0, "web", "-n", f.Name, "--yes"); !containsAll(out, "set to Auto, previously Status", "kubectl patch recommendation -n "+f.Name+" ", "' web restores it") {
		t.Errorf("crane adopt --yes printed %q, want the change to Auto and the command to undo it", out)
	}

	pods := f.AwaitPods("web", "have the lowered requests", checkRequests("700m", "512Mi"))
	after := f.state("web")
	if after.Steps != 1 || !after.Current.Equal(planned.Current) || !after.Previous.Equal(planned.Previous) || !after.Original.Equal(planned.Original) || after.Owner != planned.Owner || after.Recommendation != planned.Recommendation {
		t.Errorf("craned wrote %+v, want %+v as in the dry run", after, planned)
	}

	for _, pod := range pods {
		if want, ok := resized[string(pod.UID)]; ok {
			delete(resized, string(pod.UID))
			if got := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); got != want || pod.Generation != 2 {
				t.Errorf("pod %s requests %s of CPU, want %s as in the dry run", pod.Name, got, want)
			}
		}
	}

	if len(resized) != 0 {
		t.Errorf("the dry run printed pods that do not exist: %v, want pods of the workload", resized)
	}

	f.awaitPhase("web", adoption.Resting)
	if p := runDry(t, "web", "-n", f.Name); len(p.Adoptions[0].Requests) != 0 || p.Adoptions[0].Phase != "Resting" || p.Adoptions[0].Message != "as recommended" {
		t.Errorf("dry run after the adoption: %+v, want no requests and phase Resting", p)
	}
	if out, _ := crane(t, 0, "web", "-n", f.Name, "--yes"); !strings.Contains(out, "is already Auto") {
		t.Errorf("crane adopt --yes printed %q, want \"is already Auto\"", out)
	}
}

// TestAdoptCommandRejects checks the exit codes for invalid arguments and the reasons why Recommendations are not adopted.
// craned does not run.
func TestAdoptCommandRejects(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"web", 2, "--dry-run"},
		{"web --dry-run --yes", 2, "either"},
		{"--yes", 2, "names"},
		{"-A --yes web", 2, "--all-namespaces"},
		{"-A -n x --dry-run", 2, "--all-namespaces"},
		{"--dry-run -o wide", 2, "--output"},
		{"--dry-run --adoption-step 2", 2, "step"},
		{"--dry-run --adoption-window never", 2, "adoption-window"},
		{"--dry-run -n " + f.Name, 3, "no recommendation"},
		{"missing --dry-run -n " + f.Name, 3, "no recommendation missing"},
		{"missing --yes -n " + f.Name, 3, "no recommendation missing"},
	} {
		if _, errOut := crane(t, c.code, strings.Fields(c.args)...); !strings.Contains(errOut, c.want) {
			t.Errorf("crane adopt %s: %s, want %q", c.args, errOut, c.want)
		}
	}

	f.Deploy("web", 1)
	f.createAutoscaler(false)
	f.Deploy("off", 1, func(d *appsv1.Deployment) { d.Labels = map[string]string{analysisv1alpha1.LabelAdoption: "disabled"} })
	f.Deploy("closed", 1)

	for _, name := range []string{"web", "off", "gone"} {
		f.recommend(name, analysisv1alpha1.AdoptionTypeStatus, "700m", "512Mi")
	}

	// Of two Recommendations for one target the older one applies, or the first by name if both were created in one second.
	first := f.recommend("closed", analysisv1alpha1.AdoptionTypeStatusAndAnnotation, "700m", "512Mi")
	f.recommendTarget(first.Spec.TargetRef, "second", analysisv1alpha1.AdoptionTypeStatusAndAnnotation, "500m", "512Mi")

	p := runDry(t, "-n", f.Name, "--adoption-window=0 0 29 2 *;1 0 29 2 *")
	got := map[string]string{}
	for _, a := range p.Adoptions {
		_, name, _ := strings.Cut(a.Recommendation, "/")
		got[name] = a.Refused + " " + a.Message

		if len(a.Requests) != 0 {
			t.Errorf("the dry run of %s sends %+v, want no requests", name, a.Requests)
		}
	}

	for name, want := range map[string]string{
		"web": "HorizontalPodAutoscaler web", "off": "opted out", "closed": "no maintenance window is open", "gone": "does not exist",
		"second": "recommendation closed",
	} {
		if !strings.Contains(got[name], want) {
			t.Errorf("%s: %q, want %s", name, got[name], want)
		}
	}
}

// TestAdoptCommandReadsCranedFlags checks that the command uses the flags of craned's Deployment as defaults.
func TestAdoptCommandReadsCranedFlags(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 1)
	f.recommend("web", analysisv1alpha1.AdoptionTypeStatus, "100m", "512Mi")

	if _, errOut := crane(t, 0, "web", "-n", f.Name, "--dry-run"); !strings.Contains(errOut, "using its defaults") {
		t.Errorf("stderr %q, want a notice of craned's defaults", errOut)
	}

	none := int32(0)
	labels := map[string]string{"app.kubernetes.io/name": "craned"}
	craned := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: "craned", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "craned", Image: "example.com/craned:1",
				Args: []string{"--leader-elect=true", "--adoption-step=0.4", "--adoption-dry-run=true", "--adoption-look-interval=1s"},
			}}}},
		},
	}

	if err := admin.Create(t.Context(), craned); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct{ flags, want string }{{"", "600m"}, {"--adoption-step=0.1", "900m"}} {
		args := append([]string{"web", "-n", f.Name, "--dry-run", "--craned-namespace", f.Name}, strings.Fields(c.flags)...)
		out, errOut := crane(t, 0, args...)
		if !strings.Contains(out, fmt.Sprintf(`"cpu":%q`, c.want)) || slices.ContainsFunc(strings.Split(errOut, "\n"), func(l string) bool { return strings.Contains(l, "defaults") }) {
			t.Errorf("%q: want %s in %s%s", c.flags, c.want, out, errOut)
		}
	}
}
