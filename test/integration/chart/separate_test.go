// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"crane.io/crane/internal/kube/manifest"
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
		t.Fatal("install.md has no commands for two releases")
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
		t.Fatal("the release of the agents has no DaemonSet")
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
			t.Errorf("craned may change the namespace of the agents: %s", expression)
		}
	}
	if len(protected) != 3 || !slices.Equal(skipped, []string{"kube-system", namespace, agentNamespace}) {
		t.Errorf("%d policies of protected namespaces, new pods are left alone in %v", len(protected), skipped)
	}
}

// TestAgentNamespace checks that a name that contains that of config/ is kept, and that the agents of a release have its namespace.
func TestAgentNamespace(t *testing.T) {
	args := []string{"template", release, chart, "--namespace", "finops", "--set", registry, "--set", server, "--set", "craneAgent.namespace=crane-system-agents"}
	out := runHelm(t, append(args, "--set", "craneAgent.enabled=false")...)
	if !strings.Contains(out, "'system:serviceaccount:crane-system-agents:crane-agent'") || strings.Contains(out, "finops-agents") {
		t.Error("the agents of namespace crane-system-agents are not guarded")
	}
	if _, err := tryHelm(t, args...); err == nil || !strings.Contains(err.Error(), "set craneAgent.enabled=false") {
		t.Errorf("agents of the release with another namespace: %v", err)
	}
}
