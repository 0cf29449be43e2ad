// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/kube/manifest"
)

// gocraneObjects is a small installation of gocrane by YAML.
const gocraneObjects = `
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: effectiveverticalpodautoscalers.autoscaling.crane.io, annotations: {controller-gen.kubebuilder.io/version: v0.7.0}}, spec: {group: autoscaling.crane.io, names: {kind: EffectiveVerticalPodAutoscaler}, versions: [{name: v1alpha1}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, uid: u-cluster}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: crane-system}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: craned, namespace: crane-system, labels: {app: craned}}, spec: {replicas: 1, selector: {matchLabels: {app: craned}}, template: {metadata: {labels: {app: craned}}, spec: {containers: [{name: craned, image: mirror.example/craned, command: [/craned, '--prometheus-address=http://p:9090', --api-qps=7, --server-mode=debug]}]}}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: metric-adapter, namespace: crane-system, labels: {app: metric-adapter}}, spec: {replicas: 1, selector: {matchLabels: {app: metric-adapter}}, template: {metadata: {labels: {app: metric-adapter}}, spec: {containers: [{name: metric-adapter, image: docker.io/gocrane/metric-adapter:v0.11.0}]}}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: crane-agent, namespace: crane-system, labels: {app: crane-agent}}, spec: {selector: {matchLabels: {app: crane-agent}}, template: {metadata: {labels: {app: crane-agent}}, spec: {containers: [{name: crane-agent, image: docker.io/gocrane/crane-agent:v0.11.0}]}}}}
---
{apiVersion: v1, kind: Service, metadata: {name: craned, namespace: crane-system}, spec: {selector: {app: craned}, ports: [{port: 443, name: craned}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: metric-adapter, namespace: crane-system, labels: {app.kubernetes.io/managed-by: Helm}}, spec: {selector: {app: metric-adapter}, ports: [{port: 443, name: https}]}}
---
{apiVersion: v1, kind: Secret, metadata: {name: webhook-server-tls, namespace: crane-system}, data: {tls.crt: ''}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: craned}, rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: custom-metrics-reader}, rules: []}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: others}, roleRef: {kind: ClusterRole, name: custom-metrics-reader}, subjects: [{kind: User, name: someone}]}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: crane-validating-webhook}, webhooks: [{name: v, clientConfig: {caBundle: Yg==, service: {name: craned, namespace: crane-system}}}]}
---
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1beta1.external.metrics.k8s.io}, spec: {service: {name: metric-adapter, namespace: crane-system}, insecureSkipTLSVerify: true}}
---
{apiVersion: autoscaling.crane.io/v1alpha1, kind: EffectiveVerticalPodAutoscaler, metadata: {name: web, namespace: shop}, spec: {updatePolicy: {updateMode: Auto}}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: ehpa-web, namespace: shop, labels: {app.kubernetes.io/managed-by: effective-hpa-controller}}, spec: {maxReplicas: 5}}
---
{apiVersion: v1, kind: Node, metadata: {name: n1, annotations: {node_hot_value: '0,x', own: x}}, spec: {taints: [{key: interference.crane.io, effect: PreferNoSchedule}]}, status: {capacity: {cpu: '4', gocrane.io/cpu: '2'}, allocatable: {cpu: '4', gocrane.io/cpu: '2'}, conditions: [{type: Ready, status: 'True'}, {type: interference-identified, status: 'True'}]}}
`

func testKinds() []schema.GroupVersionKind {
	return append(craneKinds(), schema.GroupVersionKind{Version: "v1", Kind: "Namespace"},
		schema.GroupVersionKind{Group: "autoscaling.crane.io", Version: "v1alpha1", Kind: "EffectiveHorizontalPodAutoscaler"},
		schema.GroupVersionKind{Group: "autoscaling.crane.io", Version: "v1alpha1", Kind: "Substitute"},
		schema.GroupVersionKind{Group: "prediction.crane.io", Version: "v1alpha1", Kind: "TimeSeriesPrediction"},
		schema.GroupVersionKind{Group: "autoscaling.crane.io", Version: "v1alpha1", Kind: "EffectiveVerticalPodAutoscaler"},
		schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"},
		schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"},
		schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"})
}

// killed is the error of a client whose process has ended.
var errKilled = errors.New("killed")

// fixture is a cluster in memory, whose workloads are always ready.
type fixture struct {
	*testing.T
	client client.WithWatch
	// left is the number of writes until the process is killed after one; negative for never.
	left int
	dead bool
	// stateFile is the path of the operator's state file.
	stateFile string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()

	scheme := runtime.NewScheme()
	for _, k := range testKinds() {
		scheme.AddKnownTypeWithName(k, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(k.GroupVersion().WithKind(k.Kind+"List"), &unstructured.UnstructuredList{})
	}

	objects, err := manifest.ParseString(gocraneObjects)
	if err != nil {
		t.Fatal(err)
	}

	node := (Ref{APIVersion: "v1", Kind: "Node"}).empty()
	b := fake.NewClientBuilder().WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithScheme(scheme).WithStatusSubresource(node)
	byType := func(o client.Object) []string { u, _ := o.(*Object); return []string{stringAt(u, "type")} }

	b = b.WithIndex((Ref{APIVersion: "v1", Kind: "Secret"}).empty(), "type", byType)
	for _, o := range objects {
		b = b.WithObjects(simulated(o))
	}

	return &fixture{T: t, client: b.Build(), left: -1, stateFile: filepath.Join(t.TempDir(), "state.json")}
}

// simulated sets what controllers of Kubernetes and craned set.
func simulated(o *Object) *Object {
	switch o.GetKind() {
	case "Deployment":
		n, _ := number(o.Object["spec"].(map[string]any)["replicas"])
		o.Object["status"] = map[string]any{"replicas": int64(n), "readyReplicas": int64(n), "updatedReplicas": int64(n)}
	case "DaemonSet":
		n := int64(2)
		if stringAt(o, "spec", "template", "spec", "nodeSelector", stopSelector) != "" {
			n = 0
		}

		o.Object["status"] = map[string]any{"currentNumberScheduled": n, "desiredNumberScheduled": n, "numberReady": n}

	case "CustomResourceDefinition":
		o.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		for _, w := range o.Object["webhooks"].([]any) {
			w.(map[string]any)["clientConfig"].(map[string]any)["caBundle"] = "Yg=="
		}
	}

	return o
}

func (f *fixture) wrote(err error) error {
	f.left--
	if err == nil && f.left == 0 {
		f.dead = true
		return errKilled
	}

	return err
}

// migration returns a migration that is killed after a number of writes; the last one is stored and its answer lost.
func (f *fixture) migration(writes int) *Migration {
	f.left = writes
	f.dead = false
	alive := func() error {
		if f.dead {
			return errKilled
		}

		return nil
	}

	write := func(do func() error) error {
		if err := alive(); err != nil {
			return err
		}

		return f.wrote(do())
	}

	c := interceptor.NewClient(f.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := errors.Join(alive(), c.Get(ctx, key, o, opts...))
			if u, ok := o.(*Object); ok && err == nil {
				simulated(u)
			}

			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, o) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
			return write(func() error { return c.Update(ctx, o) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, _ ...client.SubResourceUpdateOption) error {
			return write(func() error { return c.SubResource(name).Update(ctx, o) })
		},
	})

	return &Migration{
		Client:        c,
		ServerVersion: "v1.36.3",
		Clock:         clock.RealClock{},
		StateFile:     f.stateFile,
		Timeout:       time.Second,
		Log:           func(string, ...any) {},
	}
}

func testOptions() Options {
	return Options{ImageRegistry: "registry.example/crane", ImageTag: "1", EVPA: EVPAOff}
}

// snapshot returns all objects, without what may differ. The status of Nodes is compared.
func (f *fixture) snapshot() map[Ref]map[string]any {
	f.Helper()

	out := map[Ref]map[string]any{}
	r := &reader{Reader: f.client, unreadable: map[string]string{}}
	for _, kind := range testKinds() {
		all, err := r.list(f.Context(), kind)
		if err != nil {
			f.Fatal(err)
		}

		for _, o := range all {
			if !strings.HasPrefix(o.GetName(), JournalName) {
				out[RefOf(o)] = content(o)
				if o.GetKind() == "Node" {
					out[RefOf(o)] = stripped(o).Object
				}
			}
		}
	}

	return out
}

func (f *fixture) compare(what string, want map[Ref]map[string]any) {
	f.Helper()

	now := f.snapshot()
	for ref, o := range want {
		if !reflect.DeepEqual(now[ref], o) {
			f.Errorf("%s: %s is %v, want %v", what, ref, now[ref], o)
		}
		delete(now, ref)
	}

	for ref := range now {
		f.Errorf("%s: %s is new", what, ref)
	}
}

// TestRun_InterruptedAnywhere ends a migration and its undo after each write. The results are those without interruption.
func TestRun_InterruptedAnywhere(t *testing.T) {
	f := newFixture(t)
	before := f.snapshot()
	run := func(m *Migration) error { return m.Run(t.Context(), testOptions(), nil, true, false) }

	undo := func(m *Migration) error {
		err := m.Undo(t.Context())
		if errors.Is(err, errNoMigration) {
			return nil
		}

		return err
	}

	if err := run(f.migration(-1)); err != nil {
		t.Fatal(err)
	}

	migrated := f.snapshot()
	if err := undo(f.migration(-1)); err != nil {
		t.Fatal(err)
	}

	f.compare("undo", before)
	for _, each := range []struct {
		name string
		call func(*Migration) error
		want map[Ref]map[string]any
	}{{"run", run, migrated}, {"undo", undo, before}} {
		kills := 0
		for ; ; kills++ {
			err := each.call(f.migration(1))
			if err == nil {
				break
			}
			if !errors.Is(err, errKilled) || kills > 1000 {
				t.Fatalf("%s after %d kills = %v, want it to end within 1000", each.name, kills, err)
			}
		}

		f.compare(each.name, each.want)
		t.Logf("%s: %d kills survived", each.name, kills)

		if kills < 30 {
			t.Errorf("%s was killed %d times, want 30 or more", each.name, kills)
		}
	}
}

// TestUndo_AfterWrites ends a migration after a number of writes and undoes it. The steps are those of TestUndoFromEachStep in test/integration/migrate.
func TestUndo_AfterWrites(t *testing.T) {
	f := newFixture(t)
	before := f.snapshot()
	for writes := 1; ; writes += 9 {
		err := f.migration(writes).Run(t.Context(), testOptions(), nil, true, false)
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("Run with %d writes = %v, want it killed or done", writes, err)
		}

		if undo := f.migration(-1).Undo(t.Context()); undo != nil {
			t.Fatalf("Undo after %d writes = %v, want nil", writes, undo)
		}

		f.compare("undo", before)
		if t.Failed() {
			t.Fatalf("after %d writes", writes)
		}

		if err == nil {
			t.Logf("undone after up to %d writes", writes)
			return
		}
	}
}

// TestRun_Result checks what a migration leaves, and that decisions and the pause hold it.
func TestRun_Result(t *testing.T) {
	f := newFixture(t)
	if err := f.migration(-1).Run(t.Context(), Options{ImageRegistry: "r"}, nil, true, false); err == nil || !strings.Contains(err.Error(), "EVPAActs") {
		t.Fatalf("Run without a decision = %v, want an error that names EVPAActs", err)
	}

	if err := f.migration(-1).Run(t.Context(), testOptions(), nil, false, false); !errors.Is(err, ErrPaused) {
		t.Fatalf("Run without --continue = %v, want ErrPaused", err)
	}

	secret := namespacedRef("v1", "Secret", "crane-system", "webhook-server-tls")
	if f.snapshot()[secret] == nil {
		t.Errorf("%s is removed before the pause, want it kept", secret)
	}
	if err := f.migration(-1).Finish(t.Context()); err == nil || !strings.Contains(err.Error(), stepRetire) {
		t.Errorf("Finish before the last step = %v, want an error that names %s", err, stepRetire)
	}
	if err := f.migration(-1).Run(t.Context(), Options{}, nil, true, false); err != nil {
		t.Fatal(err)
	}

	now := f.snapshot()
	if now[secret] != nil || now[Ref{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "custom-metrics-reader"}] == nil {
		t.Error("the Secret is left, or a role that others use is removed, want the Secret removed and the role kept")
	}

	craned := &Object{Object: now[namespacedRef("apps/v1", "Deployment", "crane-system", "craned")]}
	args, _, _ := unstructured.NestedStringSlice(mapsAt(craned, "spec", "template", "spec", "containers")[0], "args")
	if !slices.Contains(args, "--prometheus-address=http://p:9090") || !slices.Contains(args, "--api-qps=7") || slices.Contains(args, "--server-mode=debug") {
		t.Errorf("craned has %v, want the address of Prometheus and --api-qps=7, and no retired flag", args)
	}

	node := &Object{Object: now[Ref{APIVersion: "v1", Kind: "Node", Name: "n1"}]}
	if marksOf(node, loadMetrics(), false).any() || node.GetAnnotations()["own"] != "x" || node.GetAnnotations()[ensurancev1alpha1.AnnotationPredecessor] != ensurancev1alpha1.PredecessorGocrane {
		t.Errorf("node n1 is %v, want no marks of gocrane but the note of the predecessor", node.Object)
	}

	service := &Object{Object: now[serviceRef("crane-system", "metric-adapter")]}
	if service.GetLabels()[labelManagedBy] != "" || now[serviceRef("crane-system", bridgeName)] != nil {
		t.Errorf("the Service is %v, want one of Crane without a bridge", service.Object)
	}
	if err := f.migration(-1).Finish(t.Context()); err != nil {
		t.Fatal(err)
	}

	if inv, err := ReadInventory(t.Context(), f.client); err != nil || inv.Installed() {
		t.Errorf("ReadInventory after a migration = %v, %v, want no gocrane", inv.Items, err)
	}
	if err := f.migration(-1).Undo(t.Context()); !errors.Is(err, errNoMigration) {
		t.Errorf("Undo after Finish = %v, want %v", err, errNoMigration)
	}
}
