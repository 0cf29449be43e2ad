// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/internal/kube/manifest"
)

// forgedGrant makes a user of a tenant cluster-admin.
const forgedGrant = `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "forged"},
	"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
	"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]}`

// create creates objects of YAML, as a tenant or a user would.
func (f *fixture) create(text string) {
	f.Helper()

	objects, err := manifest.ParseString(text)
	if err != nil {
		f.Fatal(err)
	}

	for _, o := range objects {
		if err := f.client.Create(f.Context(), o); err != nil {
			f.Fatal(err)
		}
	}
}

// forge writes a journal and a backup in the form of version 1, which carried what the next command applied.
func (f *fixture) forge(namespace, phase, stepState string, away bool) {
	f.Helper()

	var grant map[string]any
	if err := json.Unmarshal([]byte(forgedGrant), &grant); err != nil {
		f.Fatal(err)
	}

	stored := map[string]any{"desired": []any{grant}}
	step := stepRights
	if phase == "undoing" || away {
		stored = map[string]any{"items": []any{map[string]any{"component": "craned", "fate": "removed", "object": grant}}}
		step = stepRetire
	}

	if away {
		step = stepCrane
	}

	content, err := json.Marshal(stored)
	if err != nil {
		f.Fatal(err)
	}

	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err = w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		f.Fatal(err)
	}

	sum := sha256.Sum256(content)
	journal, err := json.Marshal(map[string]any{
		"version": 1, "phase": phase, "started": "2026-01-01T00:00:00Z", "chunks": 1, "checksum": hex.EncodeToString(sum[:]), "options": map[string]any{"away": away},
		"steps": []any{map[string]any{"name": "backup", "state": "done"}, map[string]any{"name": step, "state": stepState}},
	})
	if err != nil {
		f.Fatal(err)
	}

	record := journalRef().empty()
	record.SetNamespace(namespace)
	record.SetName(JournalName)
	record.Object["data"] = map[string]any{"journal.json": string(journal)}
	backup := namespacedRef("v1", "Secret", namespace, "").empty()
	backup.SetNamespace(namespace)
	backup.SetName(JournalName + "-backup-0")

	backup.Object["data"] = map[string]any{"content": base64.StdEncoding.EncodeToString(zipped.Bytes())}
	for _, o := range []*Object{record, backup} {
		if err := f.client.Create(f.Context(), o); err != nil {
			f.Fatal(err)
		}
	}
}

// TestForgedJournal lets a tenant write a journal whose backup has a ClusterRoleBinding. No command may apply it.
func TestForgedJournal(t *testing.T) {
	for _, attack := range []struct {
		name, phase, step string
		away              bool
		call              func(*Migration) error
	}{
		{"run", "running", "pending", false, func(m *Migration) error { return m.Run(t.Context(), testOptions(), nil, false, false) }},
		{"continue", "paused", "pending", false, func(m *Migration) error { return m.Run(t.Context(), testOptions(), nil, true, false) }},
		{"undo", "undoing", "done", false, func(m *Migration) error { return m.Undo(t.Context()) }},
		{"undo away", "migrated", "done", true, func(m *Migration) error { return m.Undo(t.Context()) }},
	} {
		t.Run(attack.name, func(t *testing.T) {
			f := newFixture(t)
			f.forge("shop", attack.phase, attack.step, attack.away)

			err := attack.call(f.migration(-1))
			if err != nil && !errors.Is(err, errNoMigration) && !errors.Is(err, ErrPaused) {
				t.Errorf("%s with a journal in a tenant's namespace returned %v, want that it is ignored", attack.name, err)
			}

			if grant := f.snapshot()[Ref{"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "forged"}]; grant != nil {
				t.Errorf("%s with a journal in a tenant's namespace created %v, want no ClusterRoleBinding", attack.name, grant)
			}
		})
	}
}

// decoy is a Deployment of a tenant that looks like gocrane's craned, with the ServiceAccount of a binding that is not gocrane's. Its namespace comes
// before gocrane's.
const decoy = `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: craned, namespace: app, labels: {app: craned}}, spec: {replicas: 0, selector: {matchLabels: {app: craned}}, template: {metadata: {labels: {app: craned}}, spec: {serviceAccountName: ci, containers: [{name: craned, image: docker.io/gocrane/craned:v0.11.0, command: [/craned, '--prometheus-address=http://tenant:9090']}]}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: dynamic-scheduler-policy, namespace: app}, data: {policy.yaml: '{spec: {syncPolicy: [{name: own, period: 3m}]}}'}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: ci}, roleRef: {kind: ClusterRole, name: view}, subjects: [{kind: ServiceAccount, name: ci, namespace: app}]}
`

// TestDecoyNamespace lets a tenant create a Deployment craned. Its namespace may not receive the backup, nor configure Crane, nor choose what is removed
// from Nodes.
func TestDecoyNamespace(t *testing.T) {
	f := newFixture(t)
	f.create(decoy)
	before := f.snapshot()

	err := f.migration(-1).Run(t.Context(), testOptions(), nil, true, false)
	if err == nil || !strings.Contains(err.Error(), "namespaces app") || !strings.Contains(err.Error(), "--namespace") {
		t.Errorf("Run with a decoy in namespace app returned %v, want an error that names app and --namespace", err)
	}

	f.compare("a refused run", before)

	m := f.migration(-1)
	m.Namespaces = []string{"crane-system"}
	if err := m.Run(t.Context(), testOptions(), nil, true, false); err != nil {
		t.Fatalf("Run with the namespace of gocrane returned %v, want nil", err)
	}

	now := f.snapshot()
	for ref, o := range now {
		if ref.Namespace == "app" && before[ref] == nil {
			t.Errorf("Run wrote %s into a tenant's namespace, want nothing there", ref)
		}

		if ref.Namespace == "crane-system" && strings.Contains(stringOf(t, o), "tenant:9090") {
			t.Errorf("Run configured %s with the flags of a tenant's Deployment, want those of gocrane's", ref)
		}
	}

	for ref := range before {
		if ref.Namespace == "app" && now[ref] == nil {
			t.Errorf("Run deleted %s of a tenant, want it kept", ref)
		}
	}

	if node := (&Object{Object: now[Ref{APIVersion: "v1", Kind: "Node", Name: "n1"}]}); node.GetAnnotations()["own"] != "x" {
		t.Errorf("Run removed an annotation that a tenant's policy names, want it kept: node n1 has %v", node.GetAnnotations())
	}
}

// TestProvenNamespace checks what proves a namespace: a binding of the same component of gocrane, with the ServiceAccount of the workload.
func TestProvenNamespace(t *testing.T) {
	binding := func(name, subjects string) string {
		return "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: " + name + "}, roleRef: {kind: ClusterRole, name: x}, subjects: [" + subjects + "]}"
	}

	for _, c := range []struct {
		name, binding string
		want          []string
	}{
		{"no binding", binding("other", "{kind: ServiceAccount, name: ci, namespace: app}"), nil},
		{"of another component", binding("crane-agent", "{kind: ServiceAccount, name: ci, namespace: app}"), nil},
		{"of another account", binding("craned", "{kind: ServiceAccount, name: craned, namespace: app}"), nil},
		{"of another namespace", binding("craned", "{kind: ServiceAccount, name: ci, namespace: shop}"), nil},
		{"of a user", binding("craned", "{kind: User, name: ci, namespace: app}"), nil},
		{"of the account", binding("craned", "{kind: ServiceAccount, name: ci, namespace: app}"), []string{"app"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := manifest.ParseString(decoy + "\n---\n" + c.binding)
			if err != nil {
				t.Fatal(err)
			}

			byKind := map[string][]*Object{}
			for _, o := range objects {
				byKind[o.GetKind()] = append(byKind[o.GetKind()], o)
			}

			inv := &Inventory{}
			inv.findNamespaces(byKind, nil, nil)

			if !slices.Equal(inv.Namespaces, c.want) || (inv.Proven() == nil) != (len(c.want) > 0) {
				t.Errorf("findNamespaces found %v and proved %v, want %v", inv.Namespaces, inv.Proven(), c.want)
			}
		})
	}
}

// TestTwoCraned checks that of two proven craned none is chosen.
func TestTwoCraned(t *testing.T) {
	f := newFixture(t)
	f.create(decoy + "\n---\n" + `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: craned}, roleRef: {kind: ClusterRole, name: x}, subjects: [{kind: ServiceAccount, name: ci, namespace: app}]}`)

	err := f.migration(-1).Run(t.Context(), testOptions(), nil, true, false)
	if err == nil || !strings.Contains(err.Error(), "app, crane-system") {
		t.Errorf("Run with craned in two namespaces returned %v, want an error that names both", err)
	}
}

// TestForgedRelease lets a tenant write a record of Helm that claims gocrane's namespace and owns a binding of others.
func TestForgedRelease(t *testing.T) {
	f := newFixture(t)
	record := `{"name": "crane", "namespace": "crane-system", "version": 9, "chart": {"metadata": {"name": "crane"}}, "manifest": "# docker.io/gocrane/craned\n` +
		`apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: scheduler}\n"}`
	release := base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(record))))

	f.create(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: scheduler}, roleRef: {kind: ClusterRole, name: others}, subjects: [{kind: User, name: someone}]}
---
{apiVersion: v1, kind: Secret, metadata: {name: sh.helm.release.v1.crane.v9, namespace: shop}, type: helm.sh/release.v1, data: {release: ` + release + `}}
---
{apiVersion: v1, kind: Secret, metadata: {name: sh.helm.release.v1.damaged.v1, namespace: shop}, type: helm.sh/release.v1, data: {release: ''}}
`)

	m := f.migration(-1)
	m.Namespaces = []string{"crane-system"}
	if err := m.Run(t.Context(), testOptions(), nil, true, false); err != nil {
		t.Fatalf("Run beside records of Helm of a tenant returned %v, want nil", err)
	}

	now := f.snapshot()
	for _, ref := range []Ref{
		{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding", Name: "scheduler"},
		namespacedRef("v1", "Secret", "shop", "sh.helm.release.v1.crane.v9"),
	} {
		if now[ref] == nil {
			t.Errorf("Run deleted %s, which a tenant's record of Helm claims for gocrane, want it kept", ref)
		}
	}
}

// TestDecoyCrane lets a tenant create a Deployment that looks like Crane's craned, and a pod that names the StatefulSet of another namespace as its owner.
func TestDecoyCrane(t *testing.T) {
	f := newAwayFixture(t)
	f.create(`
{apiVersion: apps/v1, kind: Deployment, metadata: {name: craned, namespace: zoo, labels: {app.kubernetes.io/part-of: crane}}, spec: {replicas: 0, selector: {matchLabels: {app: craned}}, template: {metadata: {labels: {app.kubernetes.io/part-of: crane}}, spec: {serviceAccountName: ci, containers: [{name: craned, image: x}]}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: crane-node-load-policy, namespace: zoo}, data: {policy.yaml: '{spec: {syncPolicy: [{name: own, period: 3m}]}}'}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db-9, namespace: zoo, ownerReferences: [{kind: StatefulSet, name: db, uid: u-db}]}, spec: {containers: [{name: main, resources: {requests: {cpu: '64', memory: 1Ti}}}]}}
`)

	if err := f.migration(-1).Run(t.Context(), awayOptions(), nil, true, false); err != nil {
		t.Fatal(err)
	}

	now := f.snapshot()
	if now[namespacedRef("apps/v1", "Deployment", "crane-system", "craned")] != nil || now[namespacedRef("apps/v1", "Deployment", "zoo", "craned")] == nil {
		t.Error("away acted on the namespace of a tenant, want that of Crane")
	}

	if text := stringOf(t, now[namespacedRef("apps/v1", "StatefulSet", "shop", "db")]); strings.Contains(text, `"64"`) || !strings.Contains(text, "400m") {
		t.Errorf("away wrote requests of a pod of another namespace into the template, want 400m: %s", text)
	}

	if node := (&Object{Object: now[Ref{APIVersion: "v1", Kind: "Node", Name: "n1"}]}); node.GetAnnotations()["own"] != "x" {
		t.Errorf("away removed an annotation that a tenant's policy names, want it kept: node n1 has %v", node.GetAnnotations())
	}
}

// TestNamespaceOfCrane checks that a Deployment proves no namespace of Crane, and that the operator may name one.
func TestNamespaceOfCrane(t *testing.T) {
	const craned = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: craned, namespace: NAMESPACE, labels: {app.kubernetes.io/part-of: crane}}, spec: {template: {spec: {serviceAccountName: craned}}}}`
	const binding = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: craned, labels: {app.kubernetes.io/part-of: crane}}, subjects: [{kind: ServiceAccount, name: craned, namespace: crane}]}`
	one := strings.Replace(craned, "NAMESPACE", "crane", 1)

	two := one + "\n---\n" + strings.Replace(craned, "NAMESPACE", "zoo", 1)
	for _, c := range []struct {
		name, objects string
		named         []string
		want, err     string
	}{
		{"none", binding, nil, "", "not installed"},
		{"without a binding", one, nil, "", "--namespace"},
		{"named", one, []string{"crane"}, "crane", ""},
		{"proven", one + "\n---\n" + binding, nil, "crane", ""},
		{"proven beside a decoy", two + "\n---\n" + binding, nil, "crane", ""},
		{"named against the binding", two + "\n---\n" + binding, []string{"zoo"}, "zoo", ""},
		{"two named", two, []string{"crane", "zoo"}, "", "--namespace"},
		{"another named", one + "\n---\n" + binding, []string{"shop"}, "", "--namespace"},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := manifest.ParseString(c.objects)
			if err != nil {
				t.Fatal(err)
			}

			crane := &craneObjects{}
			err = crane.findNamespace(objects, c.named)
			if crane.namespace != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("findNamespace(%v) found %q with error %v, want %q with %q", c.named, crane.namespace, err, c.want, c.err)
			}
		})
	}
}

// stringOf returns an object as JSON.
func stringOf(t *testing.T, o map[string]any) string {
	t.Helper()

	content, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}

	return string(content)
}
