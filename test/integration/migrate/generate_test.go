// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/migrate"
)

type object = unstructured.Unstructured

// The size of a generated installation.
type size struct{ namespaces, workloads, ehpas, tsps, evpas, rules, nodes int }

func fullSize() size { return size{10, 300, 40, 20, 6, 10, 4} }

// installation is a generated installation of gocrane.
type installation struct {
	namespace string
	size      size
	mu        sync.Mutex
	// owned are the objects that an inventory must account for.
	owned map[migrate.Ref]bool
	uids  map[migrate.Ref]string
}

// install generates an installation, by Helm or by YAML.
func (f *fixture) install(by, namespace string, s size) {
	f.Helper()

	started := time.Now()
	f.installation = &installation{namespace: namespace, size: s, owned: map[migrate.Ref]bool{}, uids: map[migrate.Ref]string{}}
	f.create("kubectl", false, namespaced("v1", "Namespace", "", namespace, nil))
	definitions := f.definitions(by)
	f.create(by, true, definitions...)
	f.awaitServed(definitions)

	var late []*object
	for _, o := range f.components(by, namespace) {
		if strings.HasSuffix(o.GetKind(), "WebhookConfiguration") {
			late = append(late, o) // failurePolicy Fail, and no craned answers
			continue
		}

		if o.GetKind() == "Namespace" {
			continue
		}

		f.create(by, true, o)
	}

	f.generateWorkloads(s)
	f.generateObjects(s)
	f.generateNodes(s)
	f.generateUse(namespace)

	if f.load != nil {
		f.createLoaded(started)
	}

	f.create(by, true, late...)
	f.Logf("%d objects in %s", len(f.installation.owned), time.Since(started).Round(time.Millisecond))
}

// definitions returns gocrane's CRDs.
func (f *fixture) definitions(by string) []*object {
	f.Helper()

	switch {
	case !hasFixtures():
		return f.standInDefinitions(by)
	case by == "helm":
		return f.parse("charts/crane/crds")
	}

	return f.parse("deploy/manifests")
}

// parse reads manifests of gocrane.
func (f *fixture) parse(dir string) []*object {
	f.Helper()

	files, err := filepath.Glob(filepath.Join(fixtureFile(dir), "*.yaml"))
	if err != nil {
		f.Fatal(err)
	}

	var out []*object
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}

		objects, err := manifest.ParseString(string(content))
		if err != nil {
			f.Fatalf("parsing %s: %v", file, err)
		}

		out = append(out, objects...)
	}

	return out
}

// components returns the objects of the charts or of the manifests. gocrane has manifests of the scheduler in its chart alone.
func (f *fixture) components(by, namespace string) []*object {
	f.Helper()

	var out []*object
	charts := []string{"scheduler"}
	switch {
	case by == "helm":
		charts = []string{"cost-exporter", "crane", "fadvisor", "scheduler"}
	case !hasFixtures():
		charts = []string{"crane", "scheduler"}
	default:
		for _, dir := range []string{"deploy/craned", "deploy/metric-adapter", "deploy/crane-agent"} {
			out = append(out, f.parse(dir)...)
		}
	}

	for _, name := range charts {
		c, objects := f.chart(name, namespace)
		for _, o := range objects {
			if o.GetNamespace() == "" && !clusterScoped(o.GetKind()) {
				o.SetNamespace(namespace)
			}

			if by == "helm" {
				annotate(o, "meta.helm.sh/release-name", name, "meta.helm.sh/release-namespace", namespace)
				labels := o.GetLabels()
				if labels == nil {
					labels = map[string]string{}
				}

				labels["app.kubernetes.io/managed-by"] = "Helm"
				o.SetLabels(labels)
			}
		}

		out = append(out, objects...)
		if by == "helm" {
			for revision := 1; revision <= 2; revision++ {
				out = append(out, f.release(c, name, namespace, revision))
			}
		}
	}

	return out
}

// release returns the Secret in which Helm records a revision.
func (f *fixture) release(c chart, name, namespace string, revision int) *object {
	f.Helper()

	status := "deployed"
	if revision == 1 {
		status = "superseded"
	}

	content, err := json.Marshal(map[string]any{
		"name": name, "namespace": namespace, "version": revision, "manifest": c.text, "info": map[string]any{"status": status},
		"chart":  map[string]any{"metadata": map[string]any{"name": c.Name, "version": c.Version, "appVersion": c.AppVersion}},
		"config": map[string]any{"craned": map[string]any{"containerArgs": map[string]any{"prometheus-address": "http://prometheus:9090"}}},
	})
	if err != nil {
		f.Fatal(err)
	}

	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		f.Fatal(err)
	}

	if err := w.Close(); err != nil {
		f.Fatal(err)
	}

	once := base64.StdEncoding.EncodeToString(b.Bytes())
	o := namespaced("v1", "Secret", namespace, fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, revision), map[string]any{
		"type": "helm.sh/release.v1", "data": map[string]any{"release": base64.StdEncoding.EncodeToString([]byte(once))},
	})
	o.SetLabels(map[string]string{"owner": "helm", "name": name, "status": status, "version": fmt.Sprint(revision)})

	return o
}

// create creates objects with a field manager. owned ones must be in an inventory.
func (f *fixture) create(manager string, owned bool, objects ...*object) {
	f.Helper()

	var all errgroup.Group
	all.SetLimit(8)

	for _, o := range objects {
		status, hasStatus := o.Object["status"]
		status = deepCopy(status)
		all.Go(func() error {
			err := f.client.Create(f.Context(), o, client.FieldOwner(manager))
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", migrate.RefOf(o), err)
			}

			// Of kinds with a subresource the server has dropped the status.
			if hasStatus && o.Object["status"] == nil || hasStatus && slices.Contains([]string{"Node", "HorizontalPodAutoscaler"}, o.GetKind()) {
				// Controllers write to new objects as well.
				err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
					if err := f.client.Get(f.Context(), client.ObjectKeyFromObject(o), o); err != nil {
						return err
					}

					o.Object["status"] = deepCopy(status)
					return f.client.Status().Update(f.Context(), o, client.FieldOwner(manager))
				})
				if err != nil {
					return fmt.Errorf("%s: %w", migrate.RefOf(o), err)
				}
			}

			f.installation.add(o, owned)
			return nil
		})
	}

	if err := all.Wait(); err != nil {
		f.Fatal(err)
	}
}

func (i *installation) add(o *object, owned bool) {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.uids[migrate.RefOf(o)] = string(o.GetUID())
	if owned {
		i.owned[migrate.RefOf(o)] = true
	}
}

// awaitServed waits until objects of the definitions can be created.
func (f *fixture) awaitServed(definitions []*object) {
	f.Helper()

	for _, crd := range definitions {
		list := &unstructured.UnstructuredList{}
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		list.SetAPIVersion(group + "/v1alpha1")
		list.SetKind(kind + "List")
		f.eventually(crd.GetName()+" is served", func(ctx context.Context) error { return f.client.List(ctx, list) })
	}
}

// owner returns an owner reference to a created object.
func (i *installation) owner(ref migrate.Ref) map[string]any {
	i.mu.Lock()
	defer i.mu.Unlock()

	return map[string]any{
		"apiVersion": ref.APIVersion, "kind": ref.Kind, "name": ref.Name, "uid": i.uids[ref], "controller": true, "blockOwnerDeletion": true,
	}
}
