// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"crane.io/crane/internal/migrate"
	"crane.io/crane/test/nightly"
)

// registry and imageTag name the images; programs without a version, as those of tests, have no default of the tag.
const (
	registry = "--image-registry=registry.example/crane"
	imageTag = "--image-tag=v1.2.3"
)

// quotasLeft is what is printed for the nodes of fullSize after gocrane's agent.
const quotasLeft = "CPU quotas of gocrane's agent may be left on 4 nodes until crane-agent runs there with --enforce=cpu-throttle: node-0, node-1, node-2, 1 more"

// TestRunAndUndo migrates a full installation, undoes it, migrates again and finishes.
func TestRunAndUndo(t *testing.T) {
	f := newFixture(t)
	f.install("yaml", "crane-system", fullSize())
	f.simulate()
	f.settle()
	before := f.snapshot()
	admin := f.control.Kubeconfig()

	if _, errOut, code := f.crane(admin, "migrate", "run", registry); code != 1 || !strings.Contains(errOut, "EVPAActs") {
		t.Fatalf("run without a decision: exit code %d, want 1: %s", code, errOut)
	}

	out, errOut, code := f.crane(admin, "migrate", "plan", registry, imageTag, "--evpa=off")
	if code != 0 || !strings.Contains(out, "replace-metric-adapter") {
		t.Fatalf("plan: exit code %d, want 0: %s%s", code, out, errOut)
	}

	if _, errOut, code := f.crane(admin, "migrate", "run", registry, imageTag, "--evpa=off", "--dry-run"); code != 0 {
		t.Fatalf("dry run: exit code %d, want 0: %s", code, errOut)
	}

	f.compare("dry run", before)

	f.run("run", 4, registry, imageTag, "--evpa=off")
	f.checkPaused()
	f.run("run", 0, "--continue")
	f.checkMigrated()
	f.changeAsCraned()
	f.run("undo", 0)
	f.compare("undo", before)

	f.run("run", 0, registry, imageTag, "--evpa=act", "--continue")
	f.run("finish", 2)

	if out, errOut, code := f.crane(admin, "migrate", "finish", "--yes"); code != 0 || !strings.Contains(out, quotasLeft) {
		t.Errorf("finish: exit code %d, want 0 and the notice of quotas: %s%s", code, out, errOut)
	}
	if out, _, code := f.crane(admin, "migrate", "status"); code != 3 || !strings.Contains(out, quotasLeft) {
		t.Errorf("status after finish: exit code %d, want 3 without a migration: %s", code, out)
	}
	if out, _, code := f.crane(admin, "migrate", "check"); code != 3 {
		t.Errorf("check after finish: exit code %d, want 3 without gocrane: %s", code, out)
	}
}

// run runs `crane migrate` as an administrator and checks the exit code.
func (f *fixture) run(command string, want int, args ...string) {
	f.Helper()

	started := time.Now()
	out, errOut, code := f.crane(f.control.Kubeconfig(), append([]string{"migrate", command}, args...)...)
	if code != want {
		f.Fatalf("migrate %s: exit code %d, want %d: %s%s", command, code, want, out, errOut)
	}

	f.Logf("migrate %s: %s", command, time.Since(started).Round(time.Millisecond))
}

// settle waits until gocrane's workloads are ready, so that nothing changes by itself.
func (f *fixture) settle() {
	f.Helper()

	f.eventually("gocrane's Deployments are ready", func(ctx context.Context) error {
		all, err := f.list(ctx, "apps", "v1", "Deployment", client.InNamespace(f.installation.namespace))
		if err != nil {
			return err
		}

		for i := range all.Items {
			want, _, _ := unstructured.NestedInt64(all.Items[i].Object, "spec", "replicas")
			if n, _, _ := unstructured.NestedInt64(all.Items[i].Object, "status", "readyReplicas"); n != want {
				return fmt.Errorf("%s has %d of %d", all.Items[i].GetName(), n, want)
			}
		}

		return nil
	})
}

func (f *fixture) get(apiVersion, kind, namespace, name string) *object {
	f.Helper()

	o := namespaced(apiVersion, kind, namespace, name, nil)
	if err := f.client.Get(f.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		f.Fatal(err)
	}

	return o
}

func field(o *object, path ...string) string {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return fmt.Sprint(v)
}

// checkPaused checks the state before leftovers are removed: Crane serves, gocrane's objects of users are as they were.
func (f *fixture) checkPaused() {
	f.Helper()

	api := f.get("apiregistration.k8s.io/v1", "APIService", "", "v1beta1.external.metrics.k8s.io")
	if service := field(api, "spec", "service", "name"); service != "metric-adapter" {
		f.Errorf("external metrics are served by %s, want metric-adapter", service)
	}

	service := f.get("v1", "Service", "crane-system", "metric-adapter")
	if selector := field(service, "spec", "selector"); selector != "map[app.kubernetes.io/name:metric-adapter]" {
		f.Errorf("Service metric-adapter selects %s, want the pods of metric-adapter", selector)
	}

	craned := f.get("apps/v1", "Deployment", "crane-system", "craned")
	if args := field(craned, "spec", "template", "spec", "containers"); !strings.Contains(args, "registry.example/crane/craned:v1.2.3") || !strings.Contains(args, "--ehpa-cron-local-time=true") ||
		!strings.Contains(args, "--recommendation-configuration-file=") || !strings.Contains(args, "--feature-gates=Analysis=true,TimeSeriesPrediction=true,Autoscaling=true") {
		f.Errorf("craned has %s, want the image and flags of the migration", args)
	}

	f.get("v1", "Secret", "crane-system", "webhook-server-tls")
	node := f.get("v1", "Node", "", "node-1")
	if text := field(node, "spec", "taints") + field(node, "status") + field(node, "metadata", "annotations"); strings.Contains(text, "gocrane.io") || strings.Contains(text, "interference") || strings.Contains(text, "node_hot_value") {
		f.Errorf("node-1 has %s, want no marks of gocrane", text)
	}
	if held := field(f.get("v1", "Node", "", "node-0"), "status", "capacity"); !strings.Contains(held, "gocrane.io/cpu:6") || strings.Contains(held, "gocrane.io/memory") {
		f.Errorf("node-0, where a pod requests gocrane.io/cpu, has %s, want gocrane.io/cpu:6 alone", held)
	}
}

// checkMigrated checks that only Crane is left.
func (f *fixture) checkMigrated() {
	f.Helper()

	out, _, code := f.crane(f.control.Kubeconfig(), "migrate", "check", "-o", "json")
	if code != 3 {
		var report migrate.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			f.Fatal(err)
		}

		f.Errorf("check after the migration: exit code %d, want 3: %+v", code, report.Items)
	}

	status, _, _ := f.crane(f.control.Kubeconfig(), "migrate", "status")
	if !strings.Contains(status, ": migrated") || strings.Contains(status, "pending") || !strings.Contains(status, quotasLeft) {
		f.Errorf("status: %s, want a migration without pending steps", status)
	}
}

// changeAsCraned changes objects as Crane's craned may.
func (f *fixture) changeAsCraned() {
	f.Helper()

	namespace, name := fullSize().workload(1)
	// The controller of HPAs writes to them as well.
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		hpa := f.get("autoscaling/v2", "HorizontalPodAutoscaler", namespace, "ehpa-"+name)
		_ = unstructured.SetNestedField(hpa.Object, int64(7), "spec", "maxReplicas")
		return f.client.Update(f.Context(), hpa, client.FieldOwner("craned"))
	}); err != nil {
		f.Fatal(err)
	}

	recommendation := f.get("analysis.crane.io/v1alpha1", "Recommendation", appNamespace(1), "rule-1-replicas-00001")
	annotate(recommendation, "analysis.crane.io/run-number", "8")

	if err := f.client.Update(f.Context(), recommendation, client.FieldOwner("craned")); err != nil {
		f.Fatal(err)
	}

	_ = unstructured.SetNestedField(recommendation.Object, "None", "status", "action")
	if err := f.client.Status().Update(f.Context(), recommendation, client.FieldOwner("craned")); err != nil {
		f.Fatal(err)
	}
}

// TestOtherNamespace migrates an installation outside crane-system whose metric-adapter serves external metrics, and goes back.
func TestOtherNamespace(t *testing.T) {
	const api = "v1beta1.external.metrics.k8s.io"
	f := newFixture(t)
	f.install("helm", "finops", smallSize())
	service := f.get("apiregistration.k8s.io/v1", "APIService", "", api)
	_ = unstructured.SetNestedField(service.Object, "finops", "spec", "service", "namespace") // gocrane's chart names crane-system; it works where users have mended it

	if err := f.client.Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}

	f.simulate()
	f.settle()
	before := f.snapshot()

	if err := f.migration(nil).Run(t.Context(), options(), nil, true, false); err != nil {
		t.Fatal(err)
	}

	service = f.get("apiregistration.k8s.io/v1", "APIService", "", api)
	if namespace, unverified := field(service, "spec", "service", "namespace"), field(service, "spec", "insecureSkipTLSVerify"); namespace != "crane-system" || unverified != "true" {
		t.Errorf("external metrics are answered from %s, insecureSkipTLSVerify: %s, want crane-system and true before Crane's metric-adapter has written its authority", namespace, unverified)
	}

	f.get("apps/v1", "Deployment", "crane-system", "metric-adapter")
	for _, name := range []string{"craned", "metric-adapter"} {
		o := namespaced("apps/v1", "Deployment", "finops", name, nil)
		if err := f.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("gocrane's %s after the migration: %v, want it deleted", name, err)
		}
	}

	if err := f.migration(nil).Undo(t.Context()); err != nil {
		t.Fatal(err)
	}

	f.settle()
	f.compare("undo", before)
}

// errKilled ends a migration as the end of its process would.
var errKilled = errors.New("killed")

// killer is a client that fails after a number of writes: the last write is stored, and its answer is lost.
type killer struct {
	left   int
	dead   bool
	writes int
	// last is called with each written object and reports whether it is the last one.
	last func(o client.Object) bool
}

func (k *killer) wrote(o client.Object, err error) error {
	if err != nil {
		return err
	}

	k.writes++
	k.left--
	if k.left == 0 || k.last != nil && k.last(o) {
		k.dead = true
		return errKilled
	}

	return nil
}

func (k *killer) before() error {
	if k.dead {
		return errKilled
	}

	return nil
}

// wrap returns the client.
func (k *killer) wrap(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return errors.Join(k.before(), c.Get(ctx, key, o, opts...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := k.before(); err != nil {
				return err
			}

			return k.wrote(o, c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := k.before(); err != nil {
				return err
			}

			return k.wrote(o, c.Update(ctx, o, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := k.before(); err != nil {
				return err
			}

			return k.wrote(o, c.Delete(ctx, o, opts...))
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if err := k.before(); err != nil {
				return err
			}

			return k.wrote(o, c.SubResource(name).Update(ctx, o, opts...))
		},
	})
}

// migration returns a migration whose client a killer wraps; nil for none.
func (f *fixture) migration(k *killer) *migrate.Migration {
	f.Helper()

	c, err := client.NewWithWatch(quiet(f.control.Config()), client.Options{})
	if err != nil {
		f.Fatal(err)
	}

	if k == nil {
		k = &killer{left: -1}
	}

	return &migrate.Migration{Client: k.wrap(c), ServerVersion: "v1.36.3", Clock: clock.RealClock{}, Timeout: waitTimeout, Log: func(string, ...any) {}}
}

func smallSize() size { return size{2, 6, 3, 2, 3, 2, 2} }

func options() migrate.Options {
	return migrate.Options{ImageRegistry: "registry.example/crane", ImageTag: "v1.2.3", EVPA: migrate.EVPAOff}
}

// TestKillAtEveryWrite ends the process after each write of a migration, and of its undo, and continues. The result is that of a migration
// without interruption.
func TestKillAtEveryWrite(t *testing.T) {
	nightly.Only(t)
	f := newFixture(t)
	f.install("helm", "crane-system", smallSize())
	f.simulate()
	f.settle()
	before := f.snapshot()

	if err := f.migration(nil).Run(t.Context(), options(), nil, true, false); err != nil {
		t.Fatal(err)
	}

	migrated := withoutRecords(f.snapshot())
	if err := f.migration(nil).Undo(t.Context()); err != nil {
		t.Fatal(err)
	}

	f.compare("undo", before)

	kills := f.killEach(func(m *migrate.Migration) error { return m.Run(t.Context(), options(), nil, true, false) })
	now := withoutRecords(f.snapshot())
	for ref, want := range migrated {
		if fmt.Sprint(now[ref]) != fmt.Sprint(want) {
			t.Errorf("%s differs from a migration without interruption:\n%v\nwant\n%v", ref, now[ref], want)
		}
	}

	if len(now) != len(migrated) {
		t.Errorf("%d objects, want %d as without interruption", len(now), len(migrated))
	}

	t.Logf("survived %d kills of run", kills)
	t.Logf("survived %d kills of undo", f.killEach(func(m *migrate.Migration) error { return m.Undo(t.Context()) }))
	f.compare("undo with kills", before)
}

// killEach calls a function until it is not killed any more, with one write each time, and returns the number of kills.
func (f *fixture) killEach(call func(*migrate.Migration) error) int {
	f.Helper()

	for kills := 0; ; kills++ {
		err := call(f.migration(&killer{left: 1}))
		if err == nil {
			return kills
		}

		if !errors.Is(err, errKilled) {
			if strings.Contains(err.Error(), "no migration is recorded") {
				return kills // killed after the last write of an undo
			}

			f.Fatalf("after %d kills: %v, want a kill or the end", kills, err)
		}

		if kills > 2000 {
			f.Fatal("more than 2000 kills without an end, want progress")
		}
	}
}

// withoutRecords returns a snapshot without journal and backup, and without the addresses of Services.
func withoutRecords(s map[migrate.Ref]map[string]any) map[migrate.Ref]map[string]any {
	for ref, o := range s {
		if ref.Kind == "Service" {
			unstructured.RemoveNestedField(o, "spec", "clusterIP")
			unstructured.RemoveNestedField(o, "spec", "clusterIPs")
		}

		if strings.HasPrefix(ref.Name, migrate.JournalName) {
			delete(s, ref)
		}
	}

	return s
}

// TestUndoFromEachStep ends a migration after each of its steps and brings gocrane back.
func TestUndoFromEachStep(t *testing.T) {
	nightly.Only(t)
	f := newFixture(t)
	f.install("yaml", "crane-system", smallSize())
	f.simulate()
	f.settle()
	before := f.snapshot()

	plan, err := f.migration(nil).Plan(t.Context(), options(), nil)
	if err != nil {
		t.Fatal(err)
	}

	if len(plan.Steps) < 14 {
		t.Fatalf("%d steps, want 14 or more", len(plan.Steps))
	}

	for _, step := range plan.Steps {
		done := fmt.Sprintf("%q,\n      \"state\": \"done\"", step.Name)
		k := &killer{left: -1, last: func(o client.Object) bool {
			u, ok := o.(*object)
			return ok && o.GetName() == migrate.JournalName && strings.Contains(field(u, "data", "journal.json"), done)
		}}

		if err := f.migration(k).Run(t.Context(), options(), nil, true, false); !errors.Is(err, errKilled) {
			t.Fatalf("running until step %s: %v, want a kill", step.Name, err)
		}

		if err := f.migration(nil).Undo(t.Context()); err != nil {
			t.Fatalf("undoing after step %s: %v", step.Name, err)
		}

		f.settle()
		f.compare("undo from "+step.Name, before)

		if t.Failed() {
			return
		}
	}
}
