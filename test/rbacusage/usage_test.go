// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbacusage compares the rights of Crane's components with the requests that they made in other tests.
package rbacusage

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
)

// accountPrefix is that of the users of Crane's ServiceAccounts.
const accountPrefix = "system:serviceaccount:crane-system:"

// right is a verb that a role of config/rbac grants to an account.
type right struct{ account, role, group, resource, name, verb string }

func (r right) String() string {
	text := fmt.Sprintf("%s: %s %s", r.role, r.verb, strings.TrimSuffix(r.resource+"."+r.group, "."))
	if r.name != "" {
		text += " " + r.name
	}

	return text
}

// exceptions are the rights that no request shows, with the test that covers them.
var exceptions = map[string]string{
	"craned: own recommendations.analysis.crane.io":                   "checked by the policy crane-recommendation-owner: test/integration/policy",
	"craned: query-cluster timeseriespredictions.prediction.crane.io": "checked by the policy crane-prediction-query-scope: test/integration/policy",
	"crane-agent-elastic: create timeseriespredictions.prediction.crane.io": "needed by the apply, logged as a patch, that creates the object: " +
		"TestElastic (test/integration/agent)",
	"crane-agent: get nodes/configz": "checked by the kubelet, whose API no API server logs: TestTheKubeletAssigns (test/e2e/node/agent)",
}

// TestEveryRightIsUsed fails for each verb that a component never used in the tests whose API servers logged into CRANE_AUDIT_DIR.
func TestEveryRightIsUsed(t *testing.T) {
	dir := os.Getenv(controlplane.AuditEnv)
	if dir == "" {
		t.Skipf("%s does not name the directory with audit logs; run make test-rbac", controlplane.AuditEnv)
	}

	rights, err := grantedRights()
	if err != nil {
		t.Fatal(err)
	}

	used := map[right]bool{}
	requests := readRequests(t, dir, func(e *auditv1.Event) {
		for _, r := range rights {
			if !used[r] && r.allows(e) {
				used[r] = true
			}
		}
	})

	for _, account := range []string{"craned", "crane-agent", "metric-adapter", "crane-scheduler"} {
		if requests[account] == 0 {
			t.Errorf("the logs in %s have no request of %s, want some", dir, account)
		}
	}

	for _, r := range rights {
		if _, ok := exceptions[r.String()]; !used[r] && !ok {
			t.Errorf("no test uses %s, want one or its removal", r)
		}
	}

	t.Logf("%d rights, requests %v", len(rights), requests)
}

// grantedRights returns the rights that config/rbac grants to Crane's ServiceAccounts.
func grantedRights() ([]right, error) {
	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		return nil, err
	}

	roles := map[string][]rbacv1.PolicyRule{}
	for _, o := range objects {
		if kind := o.GetKind(); kind == "ClusterRole" || kind == "Role" {
			var role rbacv1.ClusterRole
			if err := decode(o, &role); err != nil {
				return nil, err
			}

			roles[kind+" "+o.GetName()] = role.Rules
		}
	}

	var all []right
	for _, o := range objects {
		if kind := o.GetKind(); kind != "ClusterRoleBinding" && kind != "RoleBinding" {
			continue
		}

		var binding rbacv1.ClusterRoleBinding
		if err := decode(o, &binding); err != nil {
			return nil, err
		}

		for _, s := range binding.Subjects {
			if s.Kind != rbacv1.ServiceAccountKind || s.Namespace != "crane-system" {
				continue
			}

			for _, rule := range roles[binding.RoleRef.Kind+" "+binding.RoleRef.Name] {
				all = append(all, expand(s.Name, binding.RoleRef.Name, rule)...)
			}
		}
	}

	return all, nil
}

func decode(o *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}

	return nil
}

// expand returns a right for each combination of a rule.
func expand(account, role string, rule rbacv1.PolicyRule) []right {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}

	var all []right
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range names {
					all = append(all, right{account: account, role: role, group: group, resource: resource, name: name, verb: verb})
				}
			}
		}
	}

	return all
}

// allows reports whether a request needs the right. An informer lists where the API server does not stream the initial objects of a watch, so
// that a watch needs both verbs.
func (r right) allows(e *auditv1.Event) bool {
	o := e.ObjectRef
	resource := o.Resource
	if o.Subresource != "" {
		resource += "/" + o.Subresource
	}

	return accountPrefix+r.account == e.User.Username && (r.verb == e.Verb || r.verb == "list" && e.Verb == "watch") && (r.group == "*" || r.group == o.APIGroup) &&
		(r.resource == "*" || r.resource == resource || r.resource == "*/"+o.Subresource) && (r.name == "" || r.name == o.Name)
}

// readRequests calls a function for each request that a component made and that was authorized, whatever became of it, and counts them by
// account. Requests that tests make with a component's token do not count: they have the user agent of the test.
func readRequests(t *testing.T, dir string, use func(*auditv1.Event)) map[string]int {
	t.Helper()

	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no audit logs in %s: %v, want some", dir, err)
	}

	counts := map[string]int{}
	seen := map[string]bool{}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}

		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)

		for lines.Scan() {
			var e auditv1.Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				continue // The last line of an API server that was killed.
			}

			account, ok := strings.CutPrefix(e.User.Username, accountPrefix)
			agent, _, _ := strings.Cut(e.UserAgent, "/")
			if !ok || e.ObjectRef == nil || e.Annotations["authorization.k8s.io/decision"] != "allow" || !slices.Contains(userAgents[account], agent) {
				continue
			}

			counts[account]++
			if key := fmt.Sprint(account, e.Verb, *e.ObjectRef); !seen[key] {
				seen[key] = true
				use(&e)
			}
		}

		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}

		f.Close()
	}

	return counts
}

// userAgents are the user agents of each component.
var userAgents = map[string][]string{
	"craned": {"craned"}, "crane-agent": {"crane-agent"}, "metric-adapter": {"crane-metric-adapter", "metric-adapter"},
	"crane-scheduler": {"crane-scheduler"},
}
