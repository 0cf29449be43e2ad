// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// agentNamespace is the namespace of the agents in the installation of two releases in install.md.
const agentNamespace = "crane-agent"

// separateReleases returns the arguments of helm after "install", without the chart, of the two releases in install.md: that of craned, and
// that of the agents.
func separateReleases(t *testing.T) (craned, agents []string) {
	t.Helper()

	page, err := os.ReadFile(docs + "/how-to/install.md")
	if err != nil {
		t.Fatal(err)
	}

	_, section, _ := strings.Cut(string(page), "\n## Separate the privileged part\n")
	block := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindStringSubmatch(section)
	if block == nil {
		t.Fatal("install.md has no commands for two releases, want a block of them")
	}

	var out [][]string
	for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", "")) {
		if args, ok := strings.CutPrefix(line, "helm install "); ok {
			out = append(out, slices.DeleteFunc(strings.Fields(args), func(arg string) bool { return arg == "charts/crane" }))
		}
	}

	if len(out) != 2 {
		t.Fatalf("install.md installs %d releases, want 2", len(out))
	}

	return append(out[0], "--set", server), out[1]
}

// renderSeparate returns the objects of both releases.
func renderSeparate(t *testing.T) (craned, agents []*unstructured.Unstructured) {
	t.Helper()

	parse := func(args []string) []*unstructured.Unstructured {
		objects, err := manifest.ParseString(runHelm(t, append([]string{"template", args[0], chart, "--skip-tests"}, args[1:]...)...))
		if err != nil {
			t.Fatal(err)
		}

		return objects
	}

	cranedArgs, agentArgs := separateReleases(t)
	return parse(cranedArgs), parse(agentArgs)
}

// daemonSet returns the DaemonSet of the agents.
func daemonSet(t *testing.T, objects []*unstructured.Unstructured) appsv1.DaemonSet {
	t.Helper()

	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "DaemonSet" })
	if i < 0 {
		t.Fatal("the release of the agents has no DaemonSet, want one")
	}

	return convert[appsv1.DaemonSet](t, objects[i])
}

// TestSeparateAgentsAreGuarded checks that the webhook of evictions and the admission policies match the agents of a release of their own, and
// that their namespace is protected as that of craned is.
func TestSeparateAgentsAreGuarded(t *testing.T) {
	craned, agents := renderSeparate(t)
	set := daemonSet(t, agents)
	want := fmt.Sprintf("request.userInfo.username == 'system:serviceaccount:%s:%s'", set.Namespace, set.Spec.Template.Spec.ServiceAccountName)

	guards := map[string]string{}
	var protected, skipped []string
	for _, o := range append(craned, agents...) {
		switch o.GetKind() {
		case "ValidatingWebhookConfiguration":
			for _, w := range convert[admissionv1.ValidatingWebhookConfiguration](t, o).Webhooks {
				for _, c := range w.MatchConditions {
					if c.Name == "by-an-agent" {
						guards[w.Name] = c.Expression
					}
				}
			}

		case "ValidatingAdmissionPolicy":
			spec := convert[admissionv1.ValidatingAdmissionPolicy](t, o).Spec
			for _, c := range spec.MatchConditions {
				if c.Name == "by-an-agent" {
					guards[o.GetName()] = c.Expression
				}
			}

			for _, v := range spec.Variables {
				if v.Name == "protected" {
					protected = append(protected, v.Expression)
				}
			}

		case "MutatingWebhookConfiguration":
			if o.GetName() == "crane-pods" {
				skipped = convert[admissionv1.MutatingWebhookConfiguration](t, o).Webhooks[0].NamespaceSelector.MatchExpressions[0].Values
			}
		}
	}

	for name, expression := range guards {
		if expression != want {
			t.Errorf("%s matches %s, want %s", name, expression, want)
		}
	}

	if guards["evictions.agent.crane.io"] == "" || len(guards) != 5 {
		t.Errorf("guards of the agents are %v, want the webhook of evictions and four policies", guards)
	}

	for _, expression := range protected {
		if !strings.Contains(expression, "'kube-node-lease', 'crane-system', 'crane-agent']") {
			t.Errorf("craned may change the namespace of the agents: %s, want it protected", expression)
		}
	}

	if len(protected) != 3 || !slices.Equal(skipped, []string{"kube-system", namespace, agentNamespace}) {
		t.Errorf("%d policies of protected namespaces, new pods are left alone in %v, want 3 policies and both namespaces skipped", len(protected), skipped)
	}
}

// TestSeparateAgentsReadCranedsNamespace checks that agents of a release of their own read the pause switch and the opt-outs in the namespace of
// craned, and look for their DaemonSet in their own.
func TestSeparateAgentsReadCranedsNamespace(t *testing.T) {
	_, agents := renderSeparate(t)
	set := daemonSet(t, agents)
	have := map[string]string{}
	for _, v := range set.Spec.Template.Spec.Containers[0].Env {
		value := v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			value = v.ValueFrom.FieldRef.FieldPath
		}
		if _, twice := have[v.Name]; twice {
			t.Errorf("the agents have %s twice, want it once", v.Name)
		}

		have[v.Name] = value
	}

	if have["CRANE_SYSTEM_NAMESPACE"] != namespace || have["POD_NAMESPACE"] != "metadata.namespace" {
		t.Errorf("the environment of the agents is %v, want both namespaces", have)
	}

	bindings := 0
	for _, o := range agents {
		if o.GetKind() != "RoleBinding" {
			continue
		}

		bindings++
		for _, s := range convert[rbacv1.RoleBinding](t, o).Subjects {
			if s.Namespace != set.Namespace || s.Name != set.Spec.Template.Spec.ServiceAccountName {
				t.Errorf("%s gives rights to %s/%s, want the agent's account", nameOf(o), s.Namespace, s.Name)
			}
		}
	}

	if bindings != 3 {
		t.Errorf("%d RoleBindings, want 3", bindings)
	}
}

// TestSeparateInstallation installs both releases, and checks the rights of the agents as the API server evaluates them, and that it asks craned
// about their evictions.
func TestSeparateInstallation(t *testing.T) {
	f := newFixture(t)
	cranedArgs, agentArgs := separateReleases(t)
	for _, args := range [][]string{cranedArgs, agentArgs} {
		runHelm(t, append([]string{"install", args[0], chart, "--kubeconfig", f.control.Kubeconfig()}, args[1:]...)...)
	}

	configMaps := func(namespace, name string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Namespace: namespace, Resource: "configmaps", Name: name, Verb: "watch"}
	}
	for name, right := range map[string]authorizationv1.ResourceAttributes{
		"read the pause switch":    configMaps(namespace, "crane-pause"),
		"read the opt-outs":        configMaps(namespace, "crane-opt-outs"),
		"keep the eviction budget": {Namespace: namespace, Group: "coordination.k8s.io", Resource: "leases", Verb: "update"},
		"write predictions":        {Namespace: namespace, Group: "prediction.crane.io", Resource: "timeseriespredictions", Verb: "create"},
		"read their DaemonSet":     {Namespace: agentNamespace, Group: "apps", Resource: "daemonsets", Name: "crane-agent", Verb: "get"},
		"read their namespace":     {Namespace: agentNamespace, Resource: "namespaces", Name: agentNamespace, Verb: "get"},
	} {
		f.eventually("agents may "+name, func(context.Context) error {
			if !f.may(agentNamespace, "crane-agent", right) {
				return errors.New("they may not")
			}

			return nil
		})
	}

	if f.may(agentNamespace, "crane-agent", configMaps(namespace, "crane-node-load-policy")) {
		t.Error("agents may watch all ConfigMaps of the namespace of craned, want a refusal")
	}

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}, AutomountServiceAccountToken: new(false)},
	}
	f.eventually("a pod is created", func(ctx context.Context) error { return f.client.Create(ctx, pod) })

	config, err := f.control.ConfigFor(t.Context(), controlplane.ServiceAccount(agentNamespace, "crane-agent"))
	if err != nil {
		t.Fatal(err)
	}

	agent, err := harness.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}

	// craned does not run here.
	f.eventually("an agent evicts no pod without craned", func(ctx context.Context) error {
		err := agent.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}})
		if err == nil || !strings.Contains(err.Error(), `failed calling webhook "evictions.agent.crane.io"`) {
			return fmt.Errorf("want a refusal because craned does not answer: %w", errors.Join(err, errors.New("not refused so")))
		}

		return nil
	})
}

// TestAgentNamespace checks that a name that contains that of config/ is kept, and that the agents of a release have its namespace.
func TestAgentNamespace(t *testing.T) {
	args := []string{"template", release, chart, "--namespace", "finops", "--set", registry, "--set", server, "--set", "craneAgent.namespace=crane-system-agents"}
	out := runHelm(t, append(args, "--set", "craneAgent.enabled=false")...)
	if !strings.Contains(out, "'system:serviceaccount:crane-system-agents:crane-agent'") || strings.Contains(out, "finops-agents") {
		t.Error("the agents of namespace crane-system-agents are not guarded, want a guard of their account")
	}
	if _, err := tryHelm(t, args...); err == nil || !strings.Contains(err.Error(), "set craneAgent.enabled=false") {
		t.Errorf("agents of the release with another namespace: %v", err)
	}

	args[len(args)-1] = "craned.namespace=crane-system"
	if _, err := tryHelm(t, args...); err == nil || !strings.Contains(err.Error(), "set craned.enabled=false") {
		t.Errorf("craned of the release with another namespace: %v", err)
	}
}

// TestEvictionsNeedTheirGuard checks that the token of an agent evicts pods only where craned checks on which node they run: with this release
// or with another one that the values name.
func TestEvictionsNeedTheirGuard(t *testing.T) {
	for name, c := range map[string]struct {
		values []string
		guard  bool // part of the release
		right  bool
	}{
		"defaults":             {nil, true, true},
		"advisory":             {[]string{"craned.mode=advisory"}, true, true},
		"no webhooks":          {[]string{"craned.webhooks.enabled=false"}, false, false},
		"no craned":            {[]string{"craned.enabled=false"}, false, false},
		"other release":        {[]string{"craned.enabled=false", "craned.namespace=finops"}, false, true},
		"same namespace named": {[]string{"craned.webhooks.enabled=false", "craned.namespace=" + namespace}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			for _, v := range c.values {
				args = append(args, "--set", v)
			}

			guard := false
			right := false
			for _, o := range render(t, args...) {
				switch {
				case o.GetKind() == "ValidatingWebhookConfiguration":
					guard = guard || slices.ContainsFunc(convert[admissionv1.ValidatingWebhookConfiguration](t, o).Webhooks,
						func(w admissionv1.ValidatingWebhook) bool { return w.Name == "evictions.agent.crane.io" })
				case o.GetKind() == "ClusterRole" && o.GetName() == "crane-agent":
					rules := convert[rbacv1.ClusterRole](t, o).Rules
					right = slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods/eviction") })

					if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "nodes/status") }) {
						t.Error("agents lack the right to nodes/status, want it without evictions")
					}
				}
			}

			if guard != c.guard || right != c.right {
				t.Errorf("guard %v, right to evict %v; want %v, %v", guard, right, c.guard, c.right)
			}

			_, err := tryHelm(t, append([]string{
				"template", release, chart, "--namespace", namespace, "--set", registry, "--set", server,
				"--set", "craneAgent.enforce={cpu-throttle,evict}",
			}, args...)...)
			if c.right && err != nil || !c.right && (err == nil || !strings.Contains(err.Error(), "craneAgent.enforce: evict needs")) {
				t.Errorf("with evict in craneAgent.enforce: %v", err)
			}
		})
	}
}
