// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/test/integration/harness"
	"crane.io/crane/test/messy"
)

// withoutCrane is the user whose pods craned's webhook does not change.
const withoutCrane = "messy-without-crane"

// refusedByPolicy is part of the message of the admission policy.
const refusedByPolicy = "requests less than this namespace allows"

// webhooks serves craned's pod webhook and the foreign ones. While craned does not run, calls of its webhook fail.
type webhooks struct {
	address string
	craned  atomic.Pointer[admission.Webhook]
}

// serveWebhooks serves webhooks until the test ends, and lets the API server call them.
func serveWebhooks(t *testing.T) *webhooks {
	t.Helper()

	cert, key, err := control.IssueServing("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}

	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}

	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	w := &webhooks{address: listener.Addr().String()}
	mux := http.NewServeMux()
	mux.HandleFunc("/crane", func(out http.ResponseWriter, req *http.Request) {
		if hook := w.craned.Load(); hook != nil {
			hook.ServeHTTP(out, req)
			return
		}

		http.Error(out, "craned does not run", http.StatusServiceUnavailable)
	})
	mux.Handle("/"+messy.ForeignRequests, &admission.Webhook{Handler: admission.HandlerFunc(addForeignRequests)})
	mux.Handle("/"+messy.ForeignLimits, &admission.Webhook{Handler: admission.HandlerFunc(addForeignLimits)})

	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })

	w.install(t)
	return w
}

// install lets the API server call the webhooks, and installs the admission policy and the priority class.
func (w *webhooks) install(t *testing.T) {
	t.Helper()

	objects, err := manifest.ReadDir(config.Manifests, "webhook")
	if err != nil {
		t.Fatal(err)
	}

	for _, o := range objects {
		if o.GetName() != "crane-pods" {
			continue
		}

		shipped := &admissionregistrationv1.MutatingWebhookConfiguration{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, shipped); err != nil {
			t.Fatal(err)
		}

		w.call(&shipped.Webhooks[0], "crane")
		shipped.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{
			Name: "probe", Expression: fmt.Sprintf("request.userInfo.username != '%s'", withoutCrane),
		}}
		harness.Create(t, admin, shipped)
	}

	for _, last := range []string{"false", "true"} {
		for _, what := range []string{messy.ForeignRequests, messy.ForeignLimits} {
			harness.Create(t, admin, w.foreign(what, last))
		}
	}

	policy, binding := minCPUPolicy()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: messy.PriorityClass}, Value: 1000}
	harness.Create(t, admin, policy, binding, class)
}

// call sets the address of a webhook.
func (w *webhooks) call(hook *admissionregistrationv1.MutatingWebhook, path string) {
	hook.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://" + w.address + "/" + path), CABundle: control.CAPEM()}
}

// foreign returns the configuration of a foreign webhook. The API server calls configurations in the order of their names.
func (w *webhooks) foreign(what, last string) *admissionregistrationv1.MutatingWebhookConfiguration {
	name := "a-foreign-" + what
	if last == "true" {
		name = "z-foreign-" + what
	}

	hook := admissionregistrationv1.MutatingWebhook{
		Name: what + ".messy.example",
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			messy.LabelForeign: what, messy.LabelForeignLast: last,
		}},
	}

	w.call(&hook, what)
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.MutatingWebhook{hook},
	}
}

// addForeignRequests sets missing CPU requests.
func addForeignRequests(_ context.Context, req admission.Request) admission.Response {
	return changeContainers(req, func(r *corev1.ResourceRequirements) {
		if r.Requests.Cpu().IsZero() && r.Limits.Cpu().IsZero() {
			setQuantity(&r.Requests, 700)
		}
	})
}

// addForeignLimits sets missing CPU limits.
func addForeignLimits(_ context.Context, req admission.Request) admission.Response {
	return changeContainers(req, func(r *corev1.ResourceRequirements) {
		if cpu := r.Requests.Cpu(); !cpu.IsZero() && r.Limits.Cpu().IsZero() {
			setQuantity(&r.Limits, 2*cpu.MilliValue())
		}
	})
}

func setQuantity(list *corev1.ResourceList, milli int64) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}

	(*list)[corev1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
}

func changeContainers(req admission.Request, change func(*corev1.ResourceRequirements)) admission.Response {
	var pod corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil || req.Operation != admissionv1.Create {
		return admission.Allowed("")
	}

	var out []ctrlwebhook.JSONPatchOp
	for i := range pod.Spec.Containers {
		change(&pod.Spec.Containers[i].Resources)
		out = append(out, ctrlwebhook.JSONPatchOp{
			Operation: "add", Path: fmt.Sprintf("/spec/containers/%d/resources", i), Value: pod.Spec.Containers[i].Resources,
		})
	}

	return admission.Patched("", out...)
}

// minCPUPolicy returns a policy that refuses containers that request less CPU than the label of their namespace says.
func minCPUPolicy() (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	const name = "messy-min-cpu"
	expression := fmt.Sprintf("object.spec.containers.all(c, !has(c.resources.requests) || !('cpu' in c.resources.requests) || "+
		"quantity(c.resources.requests['cpu']).compareTo(quantity(namespaceObject.metadata.labels['%s'] + 'm')) >= 0)", messy.LabelMinCPU)
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: expression, Message: "a container " + refusedByPolicy}},
		},
	}

	return policy, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: messy.LabelMinCPU, Operator: metav1.LabelSelectorOpExists}},
			}},
		},
	}
}
