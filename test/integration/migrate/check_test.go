// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/internal/migrate"
	"crane.io/crane/internal/testbed/controlplane"
)

// TestCheck_AccountsForEveryObject checks that an inventory accounts for every object of an installation, by YAML and by Helm, with the rights to read alone.
func TestCheck_AccountsForEveryObject(t *testing.T) {
	for _, by := range []string{"yaml", "helm"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()

			f := newFixture(t)
			f.grant("reader", []string{"get", "list"}, "*")
			f.grant("viewer", []string{"get", "list"}, "nodes", "deployments", "daemonsets", "customresourcedefinitions", "validatingwebhookconfigurations")
			reader := f.user("reader")
			viewer := f.user("viewer")

			if out, errOut, code := f.crane(reader, "migrate", "check"); code != 3 {
				t.Fatalf("check without gocrane: exit code %d, want 3: %s%s", code, out, errOut)
			}

			namespace := map[string]string{"yaml": "crane-system", "helm": "finops"}[by]
			f.install(by, namespace, fullSize())

			out, errOut, code := f.crane(reader, "migrate", "check", "-o", "json")
			if code != 4 {
				t.Fatalf("check: exit code %d, want 4: %s", code, errOut)
			}

			var report migrate.Report
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatal(err)
			}

			f.checkItems(report)
			f.checkFindings(report, by)

			for _, format := range []string{"table", "html"} {
				text, errOut, code := f.crane(reader, "migrate", "check", "-o", format)
				if code != 4 || !strings.Contains(text, "crane-validating-webhook") || !strings.Contains(text, namespace) || len(text) < 3000 {
					t.Errorf("check as %s: exit code %d, want 4 and the webhook: %s%s", format, code, text, errOut)
				}
			}

			// What must not be read is reported, and the rest is found.
			out, errOut, code = f.crane(viewer, "migrate", "check")
			if code != 4 || !strings.Contains(out, "Unreadable") || !strings.Contains(out, "craned") {
				t.Errorf("check with few rights: exit code %d, want 4 and what is unreadable: %s%s", code, out, errOut)
			}
			if _, errOut, code := f.crane(viewer, "migrate", "export", t.TempDir()); code != 1 || !strings.Contains(errOut, "incomplete") {
				t.Errorf("an incomplete export: exit code %d, want 1: %s", code, errOut)
			}
		})
	}
}

// checkItems compares the inventory with what was generated.
func (f *fixture) checkItems(report migrate.Report) {
	f.Helper()

	found := map[migrate.Ref]migrate.Item{}
	for _, item := range report.Items {
		if _, twice := found[item.Ref]; twice {
			f.Errorf("%s is listed twice, want once", item.Ref)
		}
		if item.Fate == "" || item.Component == "" {
			f.Errorf("%s has no fate or component: %+v, want both", item.Ref, item)
		}

		found[item.Ref] = item
	}

	missing := 0
	for ref := range f.installation.owned {
		if _, ok := found[ref]; !ok {
			f.Errorf("%s is not accounted for, want a line for it", ref)
			missing++
		}

		delete(found, ref)
	}

	for ref := range found {
		if ref.Kind == "Pod" || ref.Kind == "ReplicaSet" {
			continue // of gocrane's Deployments, by controllers
		}

		f.Errorf("%s is not gocrane's, want no line for it", ref)
	}

	f.Logf("%d of %d objects accounted for", len(f.installation.owned)-missing, len(f.installation.owned))
}

func (f *fixture) checkFindings(report migrate.Report, by string) {
	f.Helper()

	has := map[string]migrate.Finding{}
	for _, finding := range report.Findings {
		has[finding.Reason] = finding
	}

	for _, reason := range []string{"EVPAActs", "PublicKey", "CronLocalTime", "ElasticPods", "PodsOfScheduler", "RecordingRules", "HostsUnknown", "GocraneBroken"} {
		if _, ok := has[reason]; !ok {
			f.Errorf("the findings %+v lack a reason, want %s", report.Findings, reason)
		}
	}

	if n := len(has["EVPAActs"].Objects); n != 4 {
		f.Errorf("%d EffectiveVerticalPodAutoscalers act, want 4: %v", n, has["EVPAActs"])
	}
	if !slices.Equal(report.Namespaces, []string{f.installation.namespace}) {
		f.Errorf("namespaces %v, want %s alone", report.Namespaces, f.installation.namespace)
	}
	if by == "helm" && (len(report.Releases) != 4 || report.Releases[1].Chart != "crane" || report.Releases[1].Revision != 2 || report.Releases[1].ChartVersion != "0.11.0") {
		f.Errorf("releases %+v, want 4, the second being crane 0.11.0", report.Releases)
	}

	if report.Pods != (migrate.PodUse{Scheduled: 1, Topology: 1, Elastic: 1}) {
		f.Errorf("pods %+v, want one of each", report.Pods)
	}
}

// grant gives a user verbs on resources of all groups.
func (f *fixture) grant(user string, verbs []string, resources ...string) {
	f.Helper()

	list := func(values []string) (out []any) {
		for _, v := range values {
			out = append(out, v)
		}

		return out
	}

	for _, o := range []*object{
		namespaced("rbac.authorization.k8s.io/v1", "ClusterRole", "", "test-"+user, map[string]any{"rules": []any{map[string]any{"apiGroups": []any{"*"}, "resources": list(resources), "verbs": list(verbs)}}}),
		namespaced("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "test-"+user, map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "test-" + user},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
		}),
	} {
		if err := f.client.Create(f.Context(), o); err != nil {
			f.Fatal(err)
		}
	}
}

// user returns the kubeconfig of a user.
func (f *fixture) user(name string) string {
	f.Helper()

	path, err := f.control.KubeconfigFor(f.Context(), name, controlplane.CertificateUser(name))
	if err != nil {
		f.Fatal(err)
	}

	return path
}
