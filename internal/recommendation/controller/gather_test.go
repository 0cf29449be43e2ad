// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/series"
)

// hourlySource knows that every pod of Deployment web is still, and counts questions.
type hourlySource struct {
	source
	questions map[metrics.HourlyMetric]int
	err       error
}

func (s *hourlySource) capabilities() metrics.Capabilities {
	return metrics.Capabilities{Usage: s, Hourly: s}
}

func (s *hourlySource) Hourly(_ context.Context, req metrics.HourlyRequest) ([]metrics.HourlySeries, error) {
	s.questions[req.Metric]++
	if s.err != nil {
		return nil, s.err
	}

	var out []metrics.HourlySeries
	for i := range 3 {
		out = append(out, metrics.HourlySeries{
			Key: metrics.ContainerKey{
				Workload: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, Pod: fmt.Sprint("web-", i), Container: "app",
			},
			Values: make([]float64, req.Hours),
		})
	}

	return out, nil
}

// running is a pod of a Deployment without a ReplicaSet between them: the fake has none.
func running(of string) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: of + "-0",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: of, UID: "u", Controller: &yes}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

// TestGather_QueriesDoNotGrowWithTargets: each figure is one question, for one target and for fifty.
func TestGather_QueriesDoNotGrowWithTargets(t *testing.T) {
	for _, n := range []int{1, 50} {
		rule := testRule("")
		rule.Spec.Recommenders = []analysisv1alpha1.Recommender{{Name: "Unused"}, {Name: "Throttle"}, {Name: "GPU"}}

		objects := []client.Object{rule, deployment("web"), running("web")}
		for i := range n - 1 {
			name := fmt.Sprint("other-", i)
			objects = append(objects, deployment(name), running(name))
		}

		f := newFixture(t, objects...)
		src := &hourlySource{questions: map[metrics.HourlyMetric]int{}}
		f.History = profile.Source{Capabilities: src.capabilities()}
		f.settle()

		if reason, message := f.ready(); reason != reasonRoundCompleted {
			t.Fatalf("condition Ready is %s: %s, want %s", reason, message, reasonRoundCompleted)
		}

		for _, figure := range []metrics.HourlyMetric{
			metrics.PodCPU, metrics.PodReceived, metrics.PodSent, metrics.ContainerThrottled, metrics.GPUUse, metrics.GPUMemory,
		} {
			if src.questions[figure] != 1 {
				t.Errorf("%d targets: %d queries for %s, want 1", n, src.questions[figure], figure)
			}
		}

		if rec := f.all()["web"]; rec.Status.Action != analysisv1alpha1.ActionPatch || rec.Spec.Type != "Unused" {
			t.Errorf("%d targets: web has status %+v, want a patch because it is unused", n, rec.Status)
		}
	}
}

// TestGather_SourceWithoutHourlyFigures: a source that cannot be asked, or fails, ends the run with a reason and writes nothing.
func TestGather_SourceWithoutHourlyFigures(t *testing.T) {
	failing := &hourlySource{questions: map[metrics.HourlyMetric]int{}, err: errors.New("server is on fire")}
	for name, history := range map[string]metrics.Capabilities{
		"cannot": {Usage: &source{}}, "fails": failing.capabilities(),
	} {
		rule := testRule("")
		rule.Spec.Recommenders = []analysisv1alpha1.Recommender{{Name: "Unused"}}
		f := newFixture(t, rule, deployment("web"), running("web"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
		f.History = profile.Source{Capabilities: history}
		f.reconcile()

		reason, message := f.ready()
		if reason != reasonSourceFailed || !strings.Contains(message, "recommender Unused") || len(f.all()) != 0 {
			t.Errorf("%s: condition Ready is %s: %s, with %d recommendations, want %s of recommender Unused and none", name, reason, message, len(f.all()), reasonSourceFailed)
		}
	}
}

func TestTotalsByWorkload(t *testing.T) {
	nan := math.NaN()
	of := func(pod string, values ...float64) metrics.HourlySeries {
		return metrics.HourlySeries{Key: metrics.ContainerKey{Workload: workload.Ref{Namespace: "shop", Kind: "Deployment", Name: "web"}, Pod: pod}, Values: values}
	}

	got := totalsByWorkload([]metrics.HourlySeries{of("a", 2, 4, nan, -1), of("b", 4, nan, nan, nan)}, 4)[workloadKey{"shop", "Deployment", "web"}]
	same := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
	if !slices.EqualFunc(got.sum, observation.Hours{6, 4, nan, nan}, same) || !slices.EqualFunc(got.mean(), observation.Hours{3, 4, nan, nan}, same) {
		t.Errorf("sum %v, mean %v, want 6 4 and gaps, and 3 4 and gaps", got.sum, got.mean())
	}
	if none := (podTotals{}).mean(); len(none) != 0 {
		t.Errorf("mean of nothing = %v, want nothing", none)
	}
}

func TestHourlyMax(t *testing.T) {
	end := time.Date(2026, 1, 2, 3, 30, 0, 0, time.UTC)
	s := series.Series{Start: end.Add(-150 * time.Minute), Step: 30 * time.Minute, Values: []float64{9, 1, 2, math.NaN(), 4, 7}}
	got := observation.HourlyMax(s, end, 3)

	// The first value lies in the third hour back; the last begins where the window ends.
	if want := (observation.Hours{9, 2, 4}); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := observation.HourlyMax(series.Series{}, end, 2); !math.IsNaN(got[0]) || !math.IsNaN(got[1]) {
		t.Errorf("HourlyMax of no samples = %v, want gaps", got)
	}
}

func TestClaimUsers(t *testing.T) {
	set := func(name string, replicas, start int32) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		s.Spec.Replicas = &replicas
		if start > 0 {
			s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: start}
		}

		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		return s
	}

	all := templates{byNamespace: map[string][]template{}}
	all.addStatefulSet(set("db", 3, 0))
	all.addStatefulSet(set("idle", 0, 0))
	all.addStatefulSet(set("late", 2, 5))
	all.add("shop", "CronJob backup", &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "backups"}},
	}}}})

	for name, want := range map[string]bool{
		"data-db-0": true, "data-db-2": true, "data-db-3": false, "data-db-x": false, "data-db--1": false, "data-idle-7": true,
		"data-late-6": true, "data-late-7": false, "backups": true, "other": false, "data-db-": false,
	} {
		if got := len(all.claimUsers(claim{"shop", name})) > 0; got != want {
			t.Errorf("%s: wanted %v", name, got)
		}
		if len(all.claimUsers(claim{"bank", name})) > 0 {
			t.Errorf("claimUsers of %s in another namespace = %v, want none", name, all.claimUsers(claim{"bank", name}))
		}
	}
}

// TestThrottlePatch_KeepsRequests checks that a patch that raises a limit omits requests: null would remove them.
func TestThrottlePatch_KeepsRequests(t *testing.T) {
	from, to := "500m", "750m"
	before, after := changeOf("app", workload.App, corev1.ResourceCPU, from, to, false)
	d, err := decision{}.withPatch("Deployment", []containerChange{before}, []containerChange{after})
	if err != nil {
		t.Fatal(err)
	}

	if strings.Contains(d.recommended, "requests") || !strings.Contains(d.recommended, `"limits":{"cpu":"750m"}`) {
		t.Errorf("recommended patch %s, want the limit 750m and no requests", d.recommended)
	}
}

func TestNodeCapacity(t *testing.T) {
	w := &runData{}
	has := corev1.ResourceList{
		corev1.ResourceCPU: apiresource.MustParse("4"), corev1.ResourceMemory: apiresource.MustParse("8Gi"), corev1.ResourcePods: apiresource.MustParse("3"),
	}
	w.objects.nodes = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Allocatable: has}}}
	w.objects.pods = []pod{
		{Pod: workload.Pod{Node: "a", Requests: workload.AmountsOf(corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1500m")})}},
		{Pod: workload.Pod{Node: "gone"}},
		{Pod: workload.Pod{}},
	}

	if got := w.nodeCapacity()[0]; got.Free.CPU != 2500 || got.Free.Memory != 8<<30 || got.FreePods != 2 || got.Allocatable.CPU != 4000 {
		t.Errorf("nodeCapacity = %+v, want 2500m, 8Gi and 2 pods free of 4 cores", got)
	}
}

// TestExampleConfiguration checks that the example has every recommender, with settings that keep Crane's defaults.
func TestExampleConfiguration(t *testing.T) {
	data, err := os.ReadFile("../../../examples/recommendation-configuration.yaml")
	if err != nil {
		t.Fatal(err)
	}

	s, err := BuiltinRegistry().ParseSettings(data)
	if err != nil {
		t.Fatal(err)
	}

	builtin := BuiltinRegistry().DefaultSettings()
	for _, r := range builtinRecommenders() {
		want, errBuiltin := builtin.configure(analysisv1alpha1.Recommender{Name: r.name})
		got, err := s.configure(analysisv1alpha1.Recommender{Name: r.name})
		if err := errors.Join(errBuiltin, err); err != nil {
			t.Errorf("configuring %s returned error %v, want none", r.name, err)
		} else if !reflect.DeepEqual(got.evaluator, want.evaluator) {
			t.Errorf("%s differs from the default: %+v, want %+v", r.name, got.evaluator, want.evaluator)
		}
	}
}

// listRecorder records the namespaces of lists by type.
type listRecorder struct {
	client.Client
	mu    sync.Mutex
	lists map[string][]string
}

func (r *listRecorder) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	r.mu.Lock()
	name := fmt.Sprintf("%T", list)
	r.lists[name] = append(r.lists[name], o.Namespace)
	r.mu.Unlock()

	return r.Client.List(ctx, list, opts...)
}

// TestBatchOfOneNamespaceReadsNoOther: what a rule of one namespace costs does not grow with the pods, Services and autoscalers of others. Only a
// recommender of capacity reads all pods.
func TestBatchOfOneNamespaceReadsNoOther(t *testing.T) {
	for recommender, pods := range map[string]string{"Resource": "", "Unused": "shop", "Replicas": "", "HPA": "", "Throttle": "shop", "Packing": metav1.NamespaceAll} {
		rule := testRule("")
		rule.Spec.NamespaceSelector = analysisv1alpha1.NamespaceSelector{MatchNames: []string{"shop"}}
		rule.Spec.Recommenders = []analysisv1alpha1.Recommender{{Name: recommender}}
		f := newFixture(t, rule, deployment("web"), running("web"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
		reader := &listRecorder{Client: f.Client, lists: map[string][]string{}}
		f.Live = reader
		f.Lister.Sources = workload.CachedSources(reader, reader, pageSize)

		src := &hourlySource{questions: map[metrics.HourlyMetric]int{}}
		f.History = profile.Source{Capabilities: src.capabilities()}
		f.History.Usage = f.source
		f.reconcile()

		if reason, message := f.ready(); reason != reasonRoundCompleted {
			t.Fatalf("%s: condition Ready is %s: %s, want %s", recommender, reason, message, reasonRoundCompleted)
		}

		read := reader.lists["*v1.PodList"]
		if pods == "shop" && len(read) == 0 {
			t.Errorf("%s reads no pods, want those of the namespace", recommender)
		}

		delete(reader.lists, "*v1.NodeList") // From the cache.
		for list, namespaces := range reader.lists {
			for _, namespace := range namespaces {
				if namespace != "shop" && (recommender != "Packing" || namespace != pods) {
					t.Errorf("%s reads %s of namespace %q, want shop alone", recommender, list, namespace)
				}
			}
		}
	}
}
