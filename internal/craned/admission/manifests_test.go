// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/kube/podwebhook"
	"crane.io/crane/internal/testbed/redirect"
)

// webhookManifest is the part of a manifest about one webhook.
type webhookManifest struct {
	path, resource, scope string
	policy                admissionregistrationv1.FailurePolicyType
	seconds               int32
	mutates               bool
	operations            []admissionregistrationv1.OperationType
	conditions            int
}

func manifests(t *testing.T) []webhookManifest {
	t.Helper()

	objects, err := manifest.ReadDir(config.Manifests, "webhook")
	if err != nil {
		t.Fatal(err)
	}

	var out []webhookManifest
	add := func(client admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations,
		policy *admissionregistrationv1.FailurePolicyType, seconds *int32, mutates bool, conditions int,
	) {
		if len(rules) != 1 || len(rules[0].Resources) != 1 || client.Service == nil || client.Service.Path == nil || policy == nil || seconds == nil {
			t.Fatalf("a webhook with the client config %+v, want one rule and resource, a path, a policy and a timeout", client)
		}

		group := strings.TrimPrefix(rules[0].APIGroups[0]+"/"+rules[0].APIVersions[0]+"/", "/")
		out = append(out, webhookManifest{
			path: *client.Service.Path, resource: group + rules[0].Resources[0], scope: string(*rules[0].Scope), policy: *policy,
			seconds: *seconds, mutates: mutates, operations: rules[0].Operations, conditions: conditions,
		})
	}

	for _, o := range objects {
		switch o.GetKind() {
		case "ValidatingWebhookConfiguration":
			for _, w := range convert[admissionregistrationv1.ValidatingWebhookConfiguration](t, o).Webhooks {
				add(w.ClientConfig, w.Rules, w.FailurePolicy, w.TimeoutSeconds, false, len(w.MatchConditions))
			}
		case "MutatingWebhookConfiguration":
			for _, w := range convert[admissionregistrationv1.MutatingWebhookConfiguration](t, o).Webhooks {
				add(w.ClientConfig, w.Rules, w.FailurePolicy, w.TimeoutSeconds, true, len(w.MatchConditions))
			}
		}
	}

	return out
}

func convert[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()

	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &out); err != nil {
		t.Fatal(err)
	}

	return out
}

// TestManifests_MatchEndpoints checks that each endpoint is configured and each configured path is served, for the resource of
// its kind.
func TestManifests_MatchEndpoints(t *testing.T) {
	endpoints, err := Endpoints(CachedFacts{}, podwebhook.NewChain(nil), EvictionGuard{})
	if err != nil {
		t.Fatal(err)
	}

	crds := map[string]string{} // group/version/plural by group/version/kind
	for _, o := range mustRead(t, "crd") {
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(o.Object, "spec", "names", "plural")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope")
		crds[group+"/v1alpha1/"+kind] = group + "/v1alpha1/" + plural + " " + scope
	}

	crds["v1/Pod"], crds["policy/v1/Eviction"] = "v1/pods Namespaced", "v1/pods/eviction Namespaced"
	all := manifests(t)
	if len(all) != len(endpoints) {
		t.Errorf("%d webhooks are configured, want the %d that are served", len(all), len(endpoints))
	}

	for _, e := range endpoints {
		want := crds[strings.TrimPrefix(e.Kind.GroupVersion().String()+"/"+e.Kind.Kind, "/")]
		if !slices.ContainsFunc(all, func(c webhookManifest) bool {
			return c.path == e.Path && c.mutates == e.Mutates && c.resource+" "+c.scope == want
		}) {
			t.Errorf("%s is not configured for %s", e.Path, want)
		}
	}
}

func mustRead(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()

	objects, err := manifest.ReadDir(config.Manifests, dir)
	if err != nil {
		t.Fatal(err)
	}

	return objects
}

// TestManifests_FailurePolicies checks the guarantee of docs/explanation/webhooks.md.
func TestManifests_FailurePolicies(t *testing.T) {
	found := false
	for _, c := range manifests(t) {
		if c.resource == "v1/pods" {
			found = true
			if c.policy != admissionregistrationv1.Ignore || c.seconds > 2 || !slices.Equal(c.operations, []admissionregistrationv1.OperationType{"CREATE"}) {
				t.Errorf("the webhook of pods is %+v, want policy Ignore, at most 2 s, and creations alone", c)
			}

			continue
		}

		if slices.ContainsFunc(c.operations, func(o admissionregistrationv1.OperationType) bool { return o != "CREATE" && o != "UPDATE" }) {
			t.Errorf("%s has the operations %v, want no deletion: it must not depend on craned", c.path, c.operations)
		}

		if c.resource == "v1/pods/eviction" {
			if c.policy != admissionregistrationv1.Fail || c.conditions != 1 {
				t.Errorf("the webhook of evictions is %+v, want policy Fail and one condition", c)
			}
			continue
		}

		if c.conditions != 2 {
			t.Errorf("%s has %d conditions, want 2: Crane's own writes and unchanged specs must not depend on craned", c.path, c.conditions)
		}
		if c.mutates && c.policy != admissionregistrationv1.Ignore {
			t.Errorf("%s has the policy %s, want Ignore: every controller takes the same defaults", c.path, c.policy)
		}
	}

	if !found {
		t.Error("no webhook of pods is configured, want one")
	}

	for _, o := range mustRead(t, "webhook") {
		if o.GetName() != "crane-pods" {
			continue
		}

		w := convert[admissionregistrationv1.MutatingWebhookConfiguration](t, o).Webhooks[0]
		r := w.NamespaceSelector.MatchExpressions[0]
		if r.Key != "kubernetes.io/metadata.name" || r.Operator != "NotIn" || !slices.Contains(r.Values, "kube-system") || !slices.Contains(r.Values, "crane-system") {
			t.Errorf("the namespace selector of pods is %+v, want one that excludes kube-system and crane-system", r)
		}
	}
}

func TestWebhookConfiguration(t *testing.T) {
	n := 0
	for _, o := range mustRead(t, "webhook") {
		if !redirect.IsWebhookConfiguration(o) {
			continue
		}

		local, err := redirect.WebhookConfiguration(o, "127.0.0.1:1234")
		if err != nil {
			t.Fatal(err)
		}

		for _, w := range local.Object["webhooks"].([]any) {
			c := w.(map[string]any)["clientConfig"].(map[string]any)
			if url, _ := c["url"].(string); !strings.HasPrefix(url, "https://127.0.0.1:1234/") || c["service"] != nil {
				t.Errorf("a redirected webhook has the client config %v, want a URL at 127.0.0.1:1234 and no Service", c)
			}

			n++
		}

		if _, err := redirect.WebhookConfiguration(local, "x"); err == nil {
			t.Error("WebhookConfiguration of webhooks without a Service = nil, want an error")
		}
	}

	if n == 0 {
		t.Error("no webhook was redirected, want all of them")
	}
}
