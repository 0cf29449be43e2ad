// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pathlength

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	adoptioncontroller "crane.io/crane/internal/adoption/controller"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/metrics/prometheus"
	recommendationcontroller "crane.io/crane/internal/recommendation/controller"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/pathlength/calltrace"
)

func now() time.Time { return time.Date(2026, 1, 20, 12, 0, 30, 0, time.UTC) }

// serveUsage serves eight days in which the container app of pod web-1-a uses half a core and 100 MiB.
func serveUsage(t *testing.T) string {
	t.Helper()

	grid := promserver.Grid{Start: now().AddDate(0, 0, -8).Truncate(time.Minute), End: now().Truncate(time.Minute), Step: time.Minute}
	constant := func(v float64, pairs ...string) promserver.Series {
		return promserver.Series{Labels: labels.FromStrings(append(pairs, "namespace", "shop", "pod", "web-1-a", "container", "app")...), Fill: func(dst []float64, _ int) {
			for i := range dst {
				dst[i] = v
			}
		}}
	}

	cpu := constant(0, "__name__", "container_cpu_usage_seconds_total", "cpu", "total")
	cpu.Fill = func(dst []float64, first int) {
		for i := range dst {
			dst[i] = float64(first+i) * 30
		}
	}

	dir := t.TempDir()
	owned := func(metric, by, object, kind, owner string) promserver.Series {
		return promserver.Series{
			Labels: labels.FromStrings("__name__", metric, "namespace", "shop", by, object, "owner_kind", kind, "owner_name", owner, "owner_is_controller", "true"),
			Fill: func(dst []float64, _ int) {
				for i := range dst {
					dst[i] = 1
				}
			},
		}
	}

	all := []promserver.Series{
		cpu, constant(100<<20, "__name__", "container_memory_working_set_bytes"),
		owned("kube_pod_owner", "pod", "web-1-a", "ReplicaSet", "web-1"), owned("kube_replicaset_owner", "replicaset", "web-1", "Deployment", "web"),
	}

	if _, err := promserver.WriteBlocks(t.Context(), dir, grid, all); err != nil {
		t.Fatal(err)
	}

	s, err := promserver.Open(promserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})

	return s.URL()
}

// objects are a Deployment whose only pod requests less CPU than it uses, and a rule that recommends its requests and adopts them.
func objects() []client.Object {
	created := metav1.NewTime(now().AddDate(0, 0, -8))
	labelSet := map[string]string{"app": "web"}
	container := corev1.Container{Name: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: apiresource.MustParse("100m"), corev1.ResourceMemory: apiresource.MustParse("64Mi"),
	}}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labelSet}, Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}
	replicas := int32(1)

	owner := func(kind, name string) []metav1.OwnerReference {
		controller := true
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "uid-" + "of", Controller: &controller}}
	}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web", CreationTimestamp: created, Generation: 1}}
	web.Spec = appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labelSet}, Template: template}
	web.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, UpdatedReplicas: 1}

	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "uid-web-1", CreationTimestamp: created, Labels: labelSet, OwnerReferences: owner("Deployment", "web")}}
	set.OwnerReferences[0].UID = web.UID
	set.Spec = appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: web.Spec.Selector, Template: template}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1-a", UID: "uid-web-1-a", CreationTimestamp: created, Labels: labelSet, OwnerReferences: owner("ReplicaSet", "web-1")}}
	pod.OwnerReferences[0].UID = set.UID
	pod.Spec = template.Spec
	pod.Spec.NodeName = "node-1"

	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &created, QOSClass: corev1.PodQOSBurstable,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: created}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: created}}, Resources: &container.Resources,
			AllocatedResources: container.Resources.Requests,
		}},
	}

	rule := &analysisv1alpha1.RecommendationRule{ObjectMeta: metav1.ObjectMeta{Name: "requests", UID: "uid-rule", Generation: 1}}
	rule.Spec.RunInterval = "1d"
	rule.Spec.ResourceSelectors = []analysisv1alpha1.ResourceSelector{{Kind: "Deployment", APIVersion: "apps/v1"}}
	rule.Spec.NamespaceSelector.Any = true
	rule.Spec.Recommenders = []analysisv1alpha1.Recommender{{Name: "Resource"}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}

	return []client.Object{namespace, node, web, set, pod, rule}
}

// indexes adds cache indexes to a fake client.
type indexes struct{ *fake.ClientBuilder }

func (x indexes) IndexField(_ context.Context, o client.Object, field string, of client.IndexerFunc) error {
	x.WithIndex(o, field, of)
	return nil
}

// usageAnswers starts the recording when the first answer with samples of usage arrives, and marks where such answers are read. Questions
// about owners, kills and heaps have other answers.
type usageAnswers struct{ done bool }

func (u *usageAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		return http.DefaultTransport.RoundTrip(r)
	}

	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}

	r.Body = io.NopCloser(bytes.NewReader(body))
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/query_range") || !bytes.Contains(body, []byte("container_cpu_usage")) && !bytes.Contains(body, []byte("working_set")) {
		return response, err
	}

	if !u.done {
		u.done = true
		calltrace.Start()
	}

	response.Body = markedBody{response.Body}
	return response, nil
}

// markedBody marks the path at each read of samples.
type markedBody struct{ io.ReadCloser }

func (b markedBody) Read(p []byte) (int, error) {
	calltrace.Mark()
	return b.ReadCloser.Read(p)
}

// TestPath runs the path from samples in Prometheus over a Recommendation to the resize of a pod, and logs the functions on it if the sources
// are instrumented.
func TestPath(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	var resized string
	var trace calltrace.Trace
	patched := interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			calltrace.Mark()
			return c.Create(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			calltrace.Mark()
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}

	patched.Apply = func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
		return nil // The fake client has no server-side apply for the annotation of a partial object.
	}
	patched.SubResourcePatch = func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
		if sub != "resize" {
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		}

		calltrace.Mark()
		trace = calltrace.Stop()
		resized = o.GetName()

		return nil
	}

	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects()...).WithInterceptorFuncs(patched).
		WithStatusSubresource(&analysisv1alpha1.Recommendation{}, &analysisv1alpha1.RecommendationRule{}).
		WithIndex(&analysisv1alpha1.Recommendation{}, targetindex.Index, targetindex.IndexValues)

	if err := recommendationcontroller.AddIndexes(t.Context(), indexes{builder}); err != nil {
		t.Fatal(err)
	}

	c := builder.Build()
	config := prometheus.DefaultConfig()
	config.Address = serveUsage(t)
	config.Now = now

	config.Transport = &usageAnswers{}
	source, err := prometheus.New(config)
	if err != nil {
		t.Fatal(err)
	}

	clock := clocktesting.NewFakePassiveClock(now())
	recorder := events.NewFakeRecorder(1000)
	rules := &recommendationcontroller.RuleReconciler{
		Client: c, Live: c, Lister: &workload.Lister{Sources: workload.CachedSources(c, c, 500), Scales: c, Scheme: scheme},
		Kinds: recommendationcontroller.DiscoveryKinds{
			Mapper: meta.NewDefaultRESTMapper(nil), Preferred: func() ([]*metav1.APIResourceList, error) { return nil, nil },
		},
		History: profile.Source{Capabilities: source.Capabilities()}, Settings: recommendationcontroller.BuiltinSettings, Namespace: "crane-system",
		ListTimeout: time.Minute, HistoryTimeout: time.Minute, Workers: 1, PassSize: 10,
		Events: recorder, Metrics: recommendationcontroller.NewMetrics(clock.Now, time.Hour), Clock: clock,
		Backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](time.Second, time.Minute),
	}

	if _, err := rules.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "requests"}}); err != nil {
		t.Fatal(err)
	}

	calltrace.Pause()
	var list analysisv1alpha1.RecommendationList
	if err := c.List(t.Context(), &list); err != nil || len(list.Items) != 1 || list.Items[0].Status.RecommendedValue == "" {
		t.Fatalf("%v, %+v", err, list.Items)
	}

	rec := &list.Items[0]
	rec.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeAuto
	if err := c.Update(t.Context(), rec); err != nil {
		t.Fatal(err)
	}

	reconciler := adoptioncontroller.NewReconciler(c, c, recorder, clock, targetsnapshot.Settings{Policy: adoption.DefaultPolicy()})
	reconciler.SystemNamespace = "crane-system"
	key := targetindex.KeyOf(rec.Spec.TargetRef)
	calltrace.Resume()

	for range 3 { // The state is stored first.
		result, err := reconciler.Reconcile(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}

		if resized != "" {
			break
		}

		clock.SetTime(clock.Now().Add(result.RequeueAfter))
	}

	if resized != "web-1-a" {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(rec), rec)
		t.Fatalf("no pod was resized: %v, %+v, %+v", err, rec.Status.Adoption, rec.Status.Conditions)
	}

	report(t, trace)
}

// report logs a trace; there is none without instrumented sources.
func report(t *testing.T, trace calltrace.Trace) {
	t.Helper()

	total := 0
	for _, folder := range slices.Sorted(maps.Keys(trace.Functions)) {
		total += len(trace.Functions[folder])
		t.Logf("%4d functions of %s", len(trace.Functions[folder]), folder)
	}

	for _, name := range slices.Sorted(maps.Keys(trace.Path)) {
		t.Logf("path: %s", name)
	}

	for _, c := range trace.TurnBacks {
		t.Logf("turn-back: %s -> %s", c.From, c.To)
	}
	t.Logf("%d functions on the path, %d entered in all; %d turn-backs", len(trace.Path), total, len(trace.TurnBacks))
}
