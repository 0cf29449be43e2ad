// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/testbed/controlplane"
)

// TestTenant migrates with a tenant in the cluster who has the role edit in one namespace, and writes there a journal and a Deployment craned.
func TestTenant(t *testing.T) {
	f := newFixture(t)
	f.install("helm", "finops", smallSize())
	f.simulate()
	f.settle()

	f.create("kubectl", false,
		namespaced("v1", "Namespace", "", "tenant", nil),
		namespaced("rbac.authorization.k8s.io/v1", "RoleBinding", "tenant", "edit", map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}},
		}))

	tenant := f.clientOf("tenant")
	pods := map[string]any{"app": "craned"}
	f.createAs(tenant,
		namespaced("v1", "ConfigMap", "tenant", "crane-migration", map[string]any{"data": map[string]any{"journal.json": `{"version":1,"phase":"running","chunks":1,"steps":[]}`}}),
		namespaced("v1", "Secret", "tenant", "crane-migration-backup-0", nil),
		namespaced("apps/v1", "Deployment", "tenant", "craned", map[string]any{"spec": map[string]any{
			"replicas": int64(0),
			"selector": map[string]any{"matchLabels": pods},
			"template": map[string]any{
				"metadata": map[string]any{"labels": pods},
				"spec": map[string]any{"containers": []any{map[string]any{
					"name": "craned", "image": "docker.io/gocrane/craned:v0.11.0", "command": []any{"/craned", "--prometheus-address=http://tenant:9090"},
				}}},
			},
		}}))

	admin := f.control.Kubeconfig()
	if _, errOut, code := f.crane(admin, "migrate", "run", registry, imageTag, "--evpa=off"); code != 1 || !strings.Contains(errOut, "namespaces tenant") || !strings.Contains(errOut, "--namespace") {
		t.Errorf("migrate run beside a tenant's craned: exit code %d, want 1 with the namespace tenant: %s", code, errOut)
	}

	before := f.snapshot()
	file := filepath.Join(t.TempDir(), "state.json")
	f.run("run", 4, registry, imageTag, "--evpa=off", "--namespace=finops", "--state-file="+file)

	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("state file: %v, %v, want mode 0600", info, err)
	}

	for ref := range f.snapshot() {
		if ref.Namespace == "tenant" && before[ref] == nil {
			t.Errorf("migrate run wrote %s into the namespace of a tenant, want nothing there", ref)
		}
	}

	// The tenant can neither write the journal, nor does another machine act on it.
	journal := namespaced("v1", "ConfigMap", "kube-system", "crane-migration", nil)
	if err := tenant.Delete(t.Context(), journal); !apierrors.IsForbidden(err) {
		t.Errorf("Delete of the journal by the tenant returned %v, want Forbidden", err)
	}

	for _, command := range []string{"run", "undo"} {
		if _, errOut, code := f.crane(admin, "migrate", command); code != 1 || !strings.Contains(errOut, "--state-file") {
			t.Errorf("migrate %s without the state file: exit code %d, want 1 with --state-file: %s", command, code, errOut)
		}
	}

	f.run("undo", 0, "--state-file="+file)
	f.settle()
	f.compare("undo", before)
}

// clientOf returns a client of a user.
func (f *fixture) clientOf(name string) client.Client {
	f.Helper()

	config, err := f.control.ConfigFor(f.Context(), controlplane.CertificateUser(name))
	if err != nil {
		f.Fatal(err)
	}

	c, err := client.New(quiet(config), client.Options{})
	if err != nil {
		f.Fatal(err)
	}

	return c
}

// createAs creates objects with a client.
func (f *fixture) createAs(c client.Client, objects ...*object) {
	f.Helper()

	for _, o := range objects {
		if err := c.Create(f.Context(), o); err != nil {
			f.Fatalf("Create %s %s/%s: %v", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
	}
}
