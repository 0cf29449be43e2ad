// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"crane.io/crane/internal/kube/podwebhook"
)

// sendRequest sends a request to the endpoint with a path.
func sendRequest(t *testing.T, path string, operation admissionv1.Operation, object, old string) admission.Response {
	t.Helper()

	facts := CachedFacts{Namespace: "crane-system", DisabledKinds: map[string]string{"ClusterNodePrediction": "the gate is off"}}
	endpoints, err := Endpoints(facts, podwebhook.NewChain(nil), EvictionGuard{})
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range endpoints {
		if e.Path == path {
			return e.webhook.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				UID: "u", Operation: operation, Name: "x", Namespace: "shop",
				Object: runtime.RawExtension{Raw: []byte(object)}, OldObject: runtime.RawExtension{Raw: []byte(old)},
			}})
		}
	}

	t.Fatalf("no endpoint has the path %s, want one", path)
	return admission.Response{}
}

const (
	ehpaPath = "autoscaling-crane-io-v1alpha1-effectivehorizontalpodautoscaler"
	badZone  = `{"metadata":{"name":"x"%s},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"d"},"crons":[{"name":"a","timezone":"Mars","start":"0 8 * * *","end":"0 9 * * *","targetReplicas":2}]}}`
)

func TestValidate_NamesField(t *testing.T) {
	object := strings.Replace(badZone, "%s", "", 1)
	answer := sendRequest(t, "/validate-"+ehpaPath, admissionv1.Create, object, "")
	if answer.Allowed || answer.Result.Code != 422 || len(answer.Result.Details.Causes) != 1 || answer.Result.Details.Causes[0].Field != "spec.crons[0].timezone" {
		t.Errorf("creating an EHPA with an unknown time zone = %+v, want it refused with code 422 because of spec.crons[0].timezone", answer.Result)
	}
	if answer := sendRequest(t, "/validate-"+ehpaPath, admissionv1.Update, object, object); !answer.Allowed || len(answer.Warnings) == 0 {
		t.Errorf("updating it unchanged = %+v, warnings %q, want it allowed with a warning", answer.Result, answer.Warnings)
	}

	deleting := strings.Replace(badZone, "%s", `,"deletionTimestamp":"2026-01-01T00:00:00Z"`, 1)
	if answer := sendRequest(t, "/validate-"+ehpaPath, admissionv1.Update, deleting, strings.Replace(object, "Mars", "UTC", 1)); !answer.Allowed {
		t.Errorf("updating it while it is being deleted = %+v, want it allowed", answer.Result)
	}
	if answer := sendRequest(t, "/validate-"+ehpaPath, admissionv1.Delete, "", object); !answer.Allowed {
		t.Errorf("deleting it = %+v, want it allowed", answer.Result)
	}
}

// TestValidate_DisabledKind checks that an object that no controller processes is admitted with a warning.
func TestValidate_DisabledKind(t *testing.T) {
	const object = `{"metadata":{"name":"x"},"spec":{"template":{"spec":{"predictionMetrics":[],"predictionWindowSeconds":3600}}}}`
	for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
		answer := sendRequest(t, "/validate-prediction-crane-io-v1alpha1-clusternodeprediction", operation, object, object)
		want := "craned does not process objects of kind ClusterNodePrediction: the gate is off"
		if !answer.Allowed || len(answer.Warnings) == 0 || answer.Warnings[0] != want {
			t.Errorf("%s: allowed %t, warnings %q, want it allowed with the warning %q", operation, answer.Allowed, answer.Warnings, want)
		}
	}

	if answer := sendRequest(t, "/validate-prediction-crane-io-v1alpha1-timeseriesprediction", admissionv1.Create, `{"metadata":{"name":"x"}}`, ""); strings.Contains(strings.Join(answer.Warnings, " "), "does not process") {
		t.Errorf("creating an object whose kind is processed: warnings %q, want none of a missing controller", answer.Warnings)
	}
}

func TestValidate_MaxWarnings(t *testing.T) {
	var rules []string
	for range 100 {
		rules = append(rules, `{"kind":"Node"}`)
	}

	answer := sendRequest(t, "/validate-analysis-crane-io-v1alpha1-recommendationrule", admissionv1.Create,
		`{"spec":{"resourceSelectors":[`+strings.Join(rules, ",")+`],"recommenders":[],"namespaceSelector":{"matchNames":["a"]}}}`, "")
	if !answer.Allowed || len(answer.Warnings) != maxWarnings+1 || !strings.HasPrefix(answer.Warnings[maxWarnings], "and ") {
		t.Errorf("a rule with many faults: allowed %t, %d warnings, want %d, the last one with the number of others", answer.Allowed, len(answer.Warnings), maxWarnings+1)
	}
}

func TestDefault_PatchesOnlyDefaults(t *testing.T) {
	answer := sendRequest(t, "/mutate-"+ehpaPath, admissionv1.Create, strings.Replace(badZone, "%s", "", 1), "")
	text, err := json.Marshal(answer.Patches)
	if err != nil || string(text) != `[{"op":"add","path":"/spec/scaleTargetRef/apiVersion","value":"apps/v1"}]` {
		t.Errorf("defaulting an EHPA patches %s, %v, want the API version of its target alone", text, err)
	}

	for name, object := range map[string]string{
		"cannot be read": `{"spec":{"maxReplicas":"many"}}`, "nothing": ``, "no object": `[]`,
		"being deleted": strings.Replace(badZone, "%s", `,"deletionTimestamp":"2026-01-01T00:00:00Z"`, 1),
	} {
		if answer := sendRequest(t, "/mutate-"+ehpaPath, admissionv1.Create, object, ""); !answer.Allowed || len(answer.Patches) > 0 {
			t.Errorf("defaulting an object that is or has %q = %+v, want it allowed and unchanged", name, answer)
		}
	}
}
