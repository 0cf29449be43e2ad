// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oomrecord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/oom"
)

const ns = "crane-system"

// fixture is a recorder on a fake API, whose parts a test calls itself.
type fixture struct {
	*Recorder
	t      *testing.T
	api    *clientset.Clientset
	clock  *clocktesting.FakeClock
	events *events.FakeRecorder
	writes atomic.Int64
}

func newFixture(t *testing.T, api *clientset.Clientset, change func(*Config)) *fixture {
	t.Helper()

	if api == nil {
		api = clientset.NewClientset()
	}

	f := &fixture{t: t, api: api, clock: clocktesting.NewFakeClock(ended.Add(time.Minute)), events: events.NewFakeRecorder(100)}
	cfg := Config{
		Pods: api.CoreV1(), ConfigMaps: api.CoreV1(), Objects: fake.NewClientBuilder().Build(), Namespace: ns,
		Limits:     oom.Limits{Count: 100, Bytes: 100 << 10, Age: 24 * time.Hour},
		CleanEvery: time.Hour, Events: f.events, Metrics: NewMetrics(), Clock: clock.WithTicker(f.clock),
	}

	if change != nil {
		change(&cfg)
	}

	api.PrependReactor("*", "configmaps", func(a ktesting.Action) (bool, runtime.Object, error) {
		if a.GetVerb() != "get" {
			f.writes.Add(1)
		}

		return false, nil, nil
	})

	f.Recorder = NewRecorder(cfg)
	return f
}

func (f *fixture) mustFlush() {
	f.t.Helper()

	if err := f.flush(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) data(name, key string) string {
	f.t.Helper()

	cm, err := f.api.CoreV1().ConfigMaps(ns).Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}

	return cm.Data[key]
}

func (f *fixture) set(data string) {
	f.t.Helper()

	cm, err := f.api.CoreV1().ConfigMaps(ns).Get(f.t.Context(), ConfigMapName, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}

	cm.Data[dataKey] = data
	if _, err := f.api.CoreV1().ConfigMaps(ns).Update(f.t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

func killedPod(name, run string) *corev1.Pod {
	return podWith(resources("100Mi", "200Mi"), func(p *corev1.Pod) {
		p.Name = name
		p.UID = types.UID("uid-" + name)
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = terminated("OOMKilled", run)
	})
}

// TestExactlyOnce: one kill is one record, however often, and by however many leaders one after the other, it is seen; and
// what is written once is not written again.
func TestExactlyOnce(t *testing.T) {
	api := clientset.NewClientset()
	f := newFixture(t, api, nil)
	for range 3 {
		f.PodUpdated(killedPod("web-1", "run-1"))
		f.mustFlush()
	}

	if n := f.writes.Load(); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}

	next := newFixture(t, api, nil)
	next.PodUpdated(killedPod("web-1", "run-1"))
	next.PodUpdated(killedPod("web-1", "run-2"))
	next.mustFlush()

	kills, err := next.Kills(t.Context())
	if err != nil || len(kills) != 2 {
		t.Errorf("Kills = %v, error %v, want 2", kills, err)
	}
	if got := testutil.ToFloat64(next.cfg.Metrics.count.WithLabelValues("shop", "web-1", "app")); got != 1 {
		t.Errorf("the second leader counts %v kills, want the 1 that it recorded", got)
	}

	next.PodDeleted(killedPod("web-1", "run-2"))
	if n := testutil.CollectAndCount(next.cfg.Metrics.count); n != 0 {
		t.Errorf("%d series of a pod that does not exist, want none", n)
	}
}

// TestFlush_WriteFails: kills wait for a write that fails; conflicts are tried at once on what is there now.
func TestFlush_WriteFails(t *testing.T) {
	api := clientset.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: ConfigMapName}, Data: map[string]string{dataKey: "[]", "mine": "kept"},
	})

	fail := errors.New("server is gone")
	tries := 0
	api.PrependReactor("update", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) {
		tries++
		if tries == 1 {
			return true, nil, fail
		}
		if tries%2 == 0 {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, ConfigMapName, errors.New("changed"))
		}

		return false, nil, nil
	})

	f := newFixture(t, api, nil)
	f.PodUpdated(killedPod("web-1", "run-1"))

	if err := f.flush(t.Context()); !errors.Is(err, fail) || len(f.pending) != 1 {
		t.Fatalf("flush returned error %v with %d pending, want %v with 1", err, len(f.pending), fail)
	}

	f.mustFlush()
	if len(f.pending) != 0 || !strings.Contains(f.data(ConfigMapName, dataKey), "web-1") || f.data(ConfigMapName, "mine") != "kept" {
		t.Errorf("%d pending, wrote %s, want none pending, the kill of web-1, and the keys of others kept", len(f.pending), f.data(ConfigMapName, dataKey))
	}
}

// failingReader returns the configured errors.
type failingReader struct {
	client.Reader
	err error
}

func (f *failingReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if f.err != nil {
		return f.err
	}

	return f.Reader.Get(ctx, key, o, opts...)
}

// TestFlush_OwnerLookupFails checks that a kill without a known owner is retried for a bounded time while the API server is busy. An owner that
// is gone, or that may not be read, is final.
func TestFlush_OwnerLookupFails(t *testing.T) {
	sets := schema.GroupResource{Group: "apps", Resource: "replicasets"}
	busy := apierrors.NewTooManyRequests("busy", 1)
	for name, test := range map[string]struct {
		err  error
		wait time.Duration
		want string // the owner's kind; empty for not written yet
	}{
		"said":         {nil, 0, "Deployment"},
		"busy":         {busy, 0, ""},
		"gives up":     {busy, ownerTimeout, "ReplicaSet"},
		"gone":         {apierrors.NewNotFound(sets, "web-1"), 0, "ReplicaSet"},
		"no right":     {apierrors.NewForbidden(sets, "web-1", errors.New("no")), 0, "ReplicaSet"},
		"unavailable":  {apierrors.NewServiceUnavailable("soon"), 0, ""},
		"not answered": {context.DeadlineExceeded, time.Minute, ""},
	} {
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Controller: new(true)}},
		}}
		objects := &failingReader{fake.NewClientBuilder().WithObjects(set).Build(), test.err}
		f := newFixture(t, nil, func(c *Config) { c.Objects = objects })
		pod := killedPod("web-1-x", "run-1")
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", Controller: new(true)}}
		f.PodUpdated(pod)
		f.clock.Step(test.wait)

		err := f.flush(t.Context())
		if (err != nil) != (test.want == "") || len(f.pending) != 0 && test.want != "" {
			t.Errorf("%s: flush returned error %v with %d pending, want owner %q", name, err, len(f.pending), test.want)
		}

		objects.err = nil
		f.mustFlush()

		kills, err := f.Kills(t.Context())
		if want := cmp.Or(test.want, "Deployment"); err != nil || len(kills) != 1 || kills[0].Owner.Kind != want {
			t.Errorf("%s: %+v, %v; want one of a %s", name, kills, err, want)
		}
	}
}

// TestFlush_UnreadableRecords: unreadable records are saved and reported, and no known record is lost.
func TestFlush_UnreadableRecords(t *testing.T) {
	f := newFixture(t, nil, nil)
	f.PodUpdated(killedPod("web-1", "run-1"))
	f.mustFlush()
	f.set("rm -rf")
	f.PodUpdated(killedPod("web-2", "run-1"))
	f.mustFlush()

	if text := f.data(ConfigMapName, dataKey); !strings.Contains(text, "web-1") || !strings.Contains(text, "web-2") {
		t.Errorf("recorded %s, want the kills of web-1 and web-2", text)
	}

	aside, err := f.api.CoreV1().ConfigMaps(ns).Get(t.Context(), UnreadableConfigMapName, metav1.GetOptions{})
	if err != nil || len(aside.Data) != 1 {
		t.Fatalf("unreadable records %v, error %v, want 1 that was set aside", aside, err)
	}

	for _, text := range aside.Data {
		if text != "rm -rf" {
			t.Errorf("set aside %q, want the text that cannot be read", text)
		}
	}

	if len(f.events.Events) != 1 || testutil.ToFloat64(f.cfg.Metrics.unreadable) != 1 {
		t.Errorf("%d events, counted %v, want 1 and 1", len(f.events.Events), testutil.ToFloat64(f.cfg.Metrics.unreadable))
	}

	// One bad record among good ones.
	good := f.data(ConfigMapName, dataKey)
	f.set(good[:len(good)-1] + `,{"Namespace":7}]`)
	f.mustFlush()

	if text := f.data(ConfigMapName, dataKey); text != good {
		t.Errorf("%s, want %s", text, good)
	}

	// Nonsense beside the records does not keep kills out.
	cm, err := f.api.CoreV1().ConfigMaps(ns).Get(t.Context(), ConfigMapName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	cm.Data[stateKey] = `{"droppedThrough":"2199-01-01T00:00:00Z"}`
	if _, err := f.api.CoreV1().ConfigMaps(ns).Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	f.PodUpdated(killedPod("web-3", "run-1"))
	f.mustFlush()

	if text := f.data(ConfigMapName, dataKey); !strings.Contains(text, "web-3") {
		t.Errorf("recorded %s, want the kill of web-3 too", text)
	}
}

// TestPodUpdated_Overflow: more kills than the queue takes are found again in the pods, and the book stays within its limits.
func TestPodUpdated_Overflow(t *testing.T) {
	f := newFixture(t, nil, nil)
	for i := range maxPending + 10 {
		f.PodUpdated(killedPod(fmt.Sprintf("web-%d", i), "run-1"))
	}

	if len(f.pending) != maxPending {
		t.Errorf("%d kills are queued, want %d", len(f.pending), maxPending)
	}

	f.mustFlush()
	select {
	case <-f.relist:
	default:
		t.Error("no list after an overflow, want all pods listed again")
	}

	kills, err := f.Kills(t.Context())
	if err != nil || len(kills) != 100 || len(f.data(ConfigMapName, dataKey)) > 100<<10 {
		t.Errorf("%d records, error %v, want 100 in at most 100 KiB", len(kills), err)
	}

	f.PodUpdated(killedPod("web-1", "run-1"))
	f.seen = map[string]bool{} // As after a restart.
	f.PodUpdated(killedPod("web-1", "run-1"))
	before := f.writes.Load()
	f.mustFlush()

	if f.writes.Load() != before {
		t.Error("kills that were dropped for newer ones were written again, want no write")
	}
}

// TestStart_EndsWithContext: the recorder leaves no goroutine behind, also while the API does not answer.
func TestStart_EndsWithContext(t *testing.T) {
	api := clientset.NewClientset()
	api.PrependReactor("*", "*", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("down") })
	f := newFixture(t, api, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Start(ctx) }()
	cancel()

	if err := <-done; err != nil {
		t.Errorf("Start returned error %v, want none", err)
	}
}

type otherSource []metrics.OOMKill

func (o otherSource) OOMKills(context.Context, metrics.Window, []string) iter.Seq2[metrics.OOMKill, error] {
	return func(yield func(metrics.OOMKill, error) bool) {
		for _, k := range o {
			if !yield(k, nil) {
				return
			}
		}
	}
}

// TestReader: a kill that both sources know is one, with the memory that the ledger knows.
func TestReader(t *testing.T) {
	f := newFixture(t, nil, nil)
	pod := killedPod("db-0", "run-1")
	controller := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", Controller: &controller}}
	f.PodUpdated(pod)
	f.mustFlush()
	key := metrics.ContainerKey{Pod: "db-0", Container: "app"}
	key.Workload.Namespace = "shop"
	key.Workload.Kind = "StatefulSet"
	key.Workload.Name = "db"

	hour := ended.Time.Truncate(time.Hour)
	reader := Reader{Ledger: f, Other: otherSource{{Key: key, Time: hour}, {Key: key, Time: hour.Add(-5 * time.Hour)}}}
	read := func(w metrics.Window, namespace string) (got []string) {
		for k, err := range reader.OOMKills(t.Context(), w, []string{namespace}) {
			if err != nil {
				t.Fatal(err)
			}

			got = append(got, fmt.Sprintf("%s %s %d", k.Key.Workload.Kind, k.Time.Format("15:04"), k.Memory>>20))
		}

		return got
	}

	got := read(metrics.Window{Start: hour.Add(-24 * time.Hour), End: hour.Add(time.Hour)}, "shop")
	if want := "[StatefulSet 12:00 200 StatefulSet 07:00 0]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if got := read(metrics.Window{Start: hour, End: hour.Add(time.Hour)}, "bank"); len(got) != 2 { // The other source filters for itself.
		t.Errorf("OOMKills of another namespace = %v, want the 2 of the other source", got)
	}
}
