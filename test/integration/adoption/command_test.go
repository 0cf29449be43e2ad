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

// crane runs the command line as the administrator.
func crane(t *testing.T, code int, args ...string) (out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if got := cli.Main(append([]string{"crane", "adopt", "--kubeconfig", control.Kubeconfig()}, args...), strings.NewReader(""), &stdout, &stderr); got != code {
		t.Fatalf("crane adopt %v: exit code %d, want %d\n%s%s", args, got, code, stdout.String(), stderr.String())
	}
	return stdout.String(), stderr.String()
}

// previewed is what a dry run says.
type previewed struct {
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

// preview is a dry run with the settings that the craned of TestAdoption has.
func preview(t *testing.T, args ...string) previewed {
	t.Helper()
	out, _ := crane(t, 0, append(append([]string{"--dry-run", "-o", "json"}, args...), quick()...)...)
	var p previewed
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return p
}

// testAdoptCommand: a dry run writes nothing, and says word by word what craned then sends.
func testAdoptCommand(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 4)
	rec := recommend(t, ns, "web", analysisv1alpha1.AdoptionTypeStatus, "700m", "512Mi")
	before := rec.ResourceVersion
	p := preview(t, "web", "-n", ns)
	untouched(t, ns, "web")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(rec), rec); err != nil || rec.ResourceVersion != before {
		t.Errorf("the recommendation was written: %v", err)
	}
	if len(p.Adoptions) != 1 || len(p.Adoptions[0].Requests) != 3 || !strings.HasPrefix(p.Adoptions[0].Message, "lowering, step 1") {
		t.Fatalf("%+v", p)
	}
	written := p.Adoptions[0].Requests[0]
	var deployment metav1.PartialObjectMetadata
	if err := json.Unmarshal(written.Body, &deployment); err != nil {
		t.Fatal(err)
	}
	said, err := adoption.ParseState(deployment.Annotations[analysisv1alpha1.AnnotationAdoption])
	if err != nil || written.Object != "deployments/web" || !written.Force || written.FieldManager != "craned-adoption-resource-state" || deployment.ResourceVersion == "" {
		t.Fatalf("%+v, %v", written, err)
	}
	resized := map[string]string{}
	for _, r := range p.Adoptions[0].Requests[1:] {
		var pod corev1.Pod
		if err := json.Unmarshal(r.Body, &pod); err != nil || r.FieldManager != "craned-adoption-resource" || r.Patch != "Apply" || r.Object != "pods/"+pod.Name+"/resize" || pod.ResourceVersion == "" {
			t.Fatalf("%+v, %v", r, err)
		}
		resized[string(pod.UID)] = pod.Spec.Containers[0].Resources.Requests.Cpu().String()
	}

	// The table says the same, and all of a namespace is looked at without a name.
	table, _ := crane(t, 0, append([]string{"--dry-run", "-n", ns}, quick()...)...)
	if !containsAll(table, ns+"/web for Deployment "+ns+"/web (Resource): lowering, step 1", "2. pods/web-", "from app: cpu 1, memory 512Mi to app: cpu 700m", `"cpu":"700m"`) {
		t.Error(table)
	}
	said2, _ := crane(t, 0, append([]string{"web", "--dry-run", "-n", ns, "-o", "yaml"}, quick()...)...)
	var again previewed
	if err := yaml.Unmarshal([]byte(said2), &again); err != nil || len(again.Adoptions) != 1 || len(again.Adoptions[0].Requests) != 3 {
		t.Errorf("%v: %s", err, said2)
	}

	if out, _ := crane(t, 0, "web", "-n", ns, "--yes"); !containsAll(out, "is Auto, it was Status", "kubectl patch recommendation web") {
		t.Error(out)
	}
	pods := podsUntil(t, ns, "web", "lowered", sized("700m", "512Mi"))
	did := state(t, ns, "web")
	if did.Steps != 1 || !did.Current.Equal(said.Current) || !did.Previous.Equal(said.Previous) || !did.Original.Equal(said.Original) || did.Owner != said.Owner || did.Recommendation != said.Recommendation {
		t.Errorf("craned wrote %+v, the dry run said %+v", did, said)
	}
	for _, pod := range pods {
		if want, ok := resized[string(pod.UID)]; ok {
			delete(resized, string(pod.UID))
			if got := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); got != want || pod.Generation != 2 {
				t.Errorf("pod %s asks for %s, the dry run said %s", pod.Name, got, want)
			}
		}
	}
	if len(resized) != 0 {
		t.Errorf("the dry run spoke of pods that are not there: %v", resized)
	}
	phase(t, ns, "web", adoption.Resting)
	if p := preview(t, "web", "-n", ns); len(p.Adoptions[0].Requests) != 0 || p.Adoptions[0].Phase != "Resting" || p.Adoptions[0].Message != "as recommended" {
		t.Errorf("when all is done: %+v", p)
	}
	if out, _ := crane(t, 0, "web", "-n", ns, "--yes"); !strings.Contains(out, "is Auto already") {
		t.Error(out)
	}
}

// TestAdoptCommandRefuses: what is not adopted is said, with the reason; what cannot be is an exit code. No craned runs.
func TestAdoptCommandRefuses(t *testing.T) {
	ns := namespaceFor(t)
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
		{"--dry-run -n " + ns, 3, "no recommendation"},
		{"nobody --dry-run -n " + ns, 3, "no recommendation nobody"},
		{"nobody --yes -n " + ns, 3, "no recommendation nobody"},
	} {
		if _, errOut := crane(t, c.code, strings.Fields(c.args)...); !strings.Contains(errOut, c.want) {
			t.Errorf("crane adopt %s: %s", c.args, errOut)
		}
	}
	deploy(t, ns, "web", 1)
	autoscale(t, ns, false)
	deploy(t, ns, "off", 1, func(d *appsv1.Deployment) { d.Labels = map[string]string{analysisv1alpha1.LabelAdoption: "disabled"} })
	deploy(t, ns, "closed", 1)
	for _, name := range []string{"web", "off", "gone"} {
		recommend(t, ns, name, analysisv1alpha1.AdoptionTypeStatus, "700m", "512Mi")
	}
	// Two for one target: made in the same second the name decides which is the elder, as it does for craned.
	elder := recommend(t, ns, "closed", analysisv1alpha1.AdoptionTypeStatusAndAnnotation, "700m", "512Mi")
	recommendNamed(t, elder.Spec.TargetRef, "twin", analysisv1alpha1.AdoptionTypeStatusAndAnnotation, "500m", "512Mi")
	p := preview(t, "-n", ns, "--adoption-window=0 0 29 2 *;1 0 29 2 *")
	got := map[string]string{}
	for _, a := range p.Adoptions {
		_, name, _ := strings.Cut(a.Recommendation, "/")
		got[name] = a.Refused + " " + a.Message
		if len(a.Requests) != 0 {
			t.Errorf("%s: %+v", name, a.Requests)
		}
	}
	for name, want := range map[string]string{
		"web": "HorizontalPodAutoscaler web", "off": "opted out", "closed": "no maintenance window is open", "gone": "does not exist",
		"twin": "recommendation closed",
	} {
		if !strings.Contains(got[name], want) {
			t.Errorf("%s: %q, want %s", name, got[name], want)
		}
	}
}

// TestAdoptCommandTakesCranedsFlags: those of its Deployment count, unless the command says otherwise.
func TestAdoptCommandTakesCranedsFlags(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 1)
	recommend(t, ns, "web", analysisv1alpha1.AdoptionTypeStatus, "100m", "512Mi")
	if _, errOut := crane(t, 0, "web", "-n", ns, "--dry-run"); !strings.Contains(errOut, "its defaults are taken") {
		t.Error(errOut)
	}
	none := int32(0)
	labels := map[string]string{"app.kubernetes.io/name": "craned"}
	craned := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "craned", Labels: labels},
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
		args := append([]string{"web", "-n", ns, "--dry-run", "--craned-namespace", ns}, strings.Fields(c.flags)...)
		out, errOut := crane(t, 0, args...)
		if !strings.Contains(out, fmt.Sprintf(`"cpu":%q`, c.want)) || slices.ContainsFunc(strings.Split(errOut, "\n"), func(l string) bool { return strings.Contains(l, "defaults") }) {
			t.Errorf("%q: want %s in %s%s", c.flags, c.want, out, errOut)
		}
	}
}
