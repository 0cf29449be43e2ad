// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"crane.io/crane/internal/testbed/simnode/kubelet"
)

var now = time.Date(2026, 5, 13, 14, 7, 0, 0, time.UTC)

func TestCatalogIsDeterministicAndGrows(t *testing.T) {
	a := Catalog(7, 60)
	b := Catalog(7, 60)
	if !reflect.DeepEqual(a, b) {
		t.Error("Catalog(7, 60) differs from its second call, want equal workloads")
	}

	if reflect.DeepEqual(a, Catalog(8, 60)) {
		t.Error("Catalog(8, 60) equals Catalog(7, 60), want other workloads")
	}
	if !reflect.DeepEqual(a[:20], Catalog(7, 20)) {
		t.Error("Catalog(7, 20) differs from the first 20 of Catalog(7, 60), want the same workloads")
	}
}

func TestCatalogIsRealistic(t *testing.T) {
	if n := len(catalog()); n != 60 {
		t.Errorf("catalog() has %d entries, want 60", n)
	}

	workloads := Catalog(1, 300)
	seen := map[string]bool{}

	kinds := map[string]int{}
	shapes := map[Kind]int{}
	namespaces := map[string]bool{}
	for _, w := range workloads {
		id := w.Namespace + "/" + w.Name
		if seen[id] {
			t.Errorf("Catalog returned %s twice, want unique names", id)
		}

		seen[id] = true
		if msgs := validation.IsDNS1123Label(w.Name); len(msgs) > 0 {
			t.Errorf("name of %s: %v, want a DNS label", id, msgs)
		}

		kinds[w.Kind]++
		namespaces[w.Namespace] = true

		for _, c := range w.Containers {
			shapes[c.Profile.Kind]++
			checkContainer(t, id, c)
		}

		if len(w.Objects()) != 1+min(1, w.MaxReplicas) {
			t.Errorf("Objects of %s returned %d, want a controller and %d autoscalers", id, len(w.Objects()), min(1, w.MaxReplicas))
		}
	}

	if kinds["Deployment"] < 200 || kinds["StatefulSet"] < 10 || kinds["DaemonSet"] != 3 || kinds["CronJob"] < 5 {
		t.Errorf("workloads by kind = %v, want 200 Deployments, 10 StatefulSets, 5 CronJobs or more, and 3 DaemonSets", kinds)
	}

	for _, k := range []Kind{Daily, Weekly, Bursty, Leak, Shift, Idle, Batch, Run, Flat, Cache, Java} {
		if shapes[k] == 0 {
			t.Errorf("Catalog has no profile of kind %s, want at least one", k)
		}
	}

	if len(namespaces) != 6 {
		t.Errorf("Catalog uses %d namespaces, want 6", len(namespaces))
	}
}

func checkContainer(t *testing.T, id string, c Container) {
	t.Helper()

	cpu, memory := c.Profile.peak()
	for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request := amount(c.Request, r)
		limit := amount(c.Limit, r)
		if limit > 0 && limit < request {
			t.Errorf("%s limit of %s/%s = %g, want at least its request %g", r, id, c.Name, limit, request)
		}
	}

	if limit := bytes(c.Limit); limit > 0 && c.Profile.Kind != Leak && limit < memory {
		t.Errorf("memory limit of %s/%s (%s) = %g, want at least its peak %g", id, c.Name, c.Profile.Kind, limit, memory)
	}
	if cpu <= 0 || memory <= 0 || cpu > 16 || memory > 16<<30 {
		t.Errorf("peak of %s/%s = %g cores, %g bytes; want up to 16 cores and 16 GiB", id, c.Name, cpu, memory)
	}
}

func TestSumFitsTwelveNodes(t *testing.T) {
	d := Sum(Catalog(1, 60))
	pods := d.Pods + 12*d.PodsPerNode
	t.Logf("60 workloads: %+v, %d pods on 12 nodes", d, pods)

	if pods < 110 || pods > 190 {
		t.Errorf("Sum of 60 workloads on 12 nodes: %d pods, want about 150", pods)
	}
	if d.CPU/12+d.NodeCPU > 32 || d.Memory/12+d.NodeMemory > 64<<30 {
		t.Errorf("Sum needs %g cores and %g GiB for each of 12 nodes, want at most 32 and 64", d.CPU/12+d.NodeCPU, (d.Memory/12+d.NodeMemory)/(1<<30))
	}
}

func TestUseIsBoundedAndDeterministic(t *testing.T) {
	for _, speed := range []float64{1, 48} {
		workloads := Catalog(3, 60)
		a := NewSource(workloads, speed)
		b := NewSource(Catalog(3, 60), speed)
		for _, w := range workloads {
			for i := range w.Containers {
				c := &w.Containers[i]
				peakCPU, peakMemory := c.Profile.peak()
				for k := range 1500 {
					at := now.Add(time.Duration(k) * 7 * time.Minute)
					start := now.Add(-time.Hour)
					if c.Profile.Kind == Leak {
						start = at.Add(-time.Duration(k%100) * c.Profile.Life / 100 / time.Duration(speed))
					}

					u := a.At(c, "pod-x", start, at)
					if !u.Known || u.CPU <= 0 || u.CPU > peakCPU || u.Memory <= 0 || u.Memory > peakMemory {
						t.Fatalf("At of %s/%s (%s) = %+v, want more than 0 and at most %g cores, %g bytes", w.Name, c.Name, c.Profile.Kind, u, peakCPU, peakMemory)
					}
					if u != b.At(c, "pod-x", start, at) {
						t.Fatalf("At of %s/%s differs between sources with the same seed, want equal use", w.Name, c.Name)
					}
				}
			}
		}
	}
}

func TestShapes(t *testing.T) {
	find := func(k Kind) *Container {
		for _, w := range Catalog(1, 60) {
			for i := range w.Containers {
				if w.Containers[i].Profile.Kind == k && w.Kind != "DaemonSet" {
					return &w.Containers[i]
				}
			}
		}

		t.Fatalf("Catalog(1, 60) has no profile of kind %s, want one", k)
		return nil
	}

	s := NewSource(nil, 1)
	mean := func(c *Container, from time.Time, d time.Duration) float64 {
		sum, n := 0.0, 0
		for at := from; at.Before(from.Add(d)); at = at.Add(time.Minute) {
			sum += s.At(c, "p", from, at).CPU
			n++
		}

		return sum / float64(n)
	}

	monday := time.Date(2026, 5, 11, 0, 0, 0, 0, time.UTC)
	weekly := find(Weekly)
	peak := monday.Add(time.Duration(weekly.Profile.PeakHour * float64(time.Hour)))
	if day, night := mean(weekly, peak.Add(-time.Hour), 2*time.Hour), mean(weekly, peak.Add(11*time.Hour), 2*time.Hour); day < 2*night {
		t.Errorf("mean of weekly = %g at the peak, %g twelve hours later; want at least twice as much at the peak", day, night)
	}
	if monday, sunday := mean(weekly, monday, 24*time.Hour), mean(weekly, monday.Add(-24*time.Hour), 24*time.Hour); sunday > 0.8*monday {
		t.Errorf("mean of weekly = %g on Monday, %g on Sunday; want at most 80 %% on Sunday", monday, sunday)
	}

	batch := find(Batch)
	if m := mean(batch, monday, 24*time.Hour); m > 0.35*batch.Profile.High || m < 0.02*batch.Profile.High {
		t.Errorf("mean of batch = %g, want between 2 %% and 35 %% of %g", m, batch.Profile.High)
	}

	shift := find(Shift)
	low := math.Inf(1)
	high := 0.0
	for d := range 36 {
		m := mean(shift, monday.AddDate(0, 0, d), 24*time.Hour)
		low = min(low, m)
		high = max(high, m)
	}

	if high < 1.5*low {
		t.Errorf("daily means of shift are between %g and %g, want a ratio of at least 1.5", low, high)
	}

	cache := find(Cache)
	if young, old := s.At(cache, "p", monday, monday.Add(time.Minute)).Memory, s.At(cache, "p", monday, monday.Add(48*time.Hour)).Memory; old < 1.5*young {
		t.Errorf("memory of cache = %g after a minute, %g after two days; want a growth by half", young, old)
	}
}

// At speed 48 a day of the pattern lasts half an hour.
func TestSpeedCompressesThePatternOnly(t *testing.T) {
	c := &Container{Name: "c", Profile: Profile{Kind: Weekly, Low: 0.1, High: 1, Weekend: 0.3, PeakHour: 15, Memory: mib}}
	fast := NewSource(nil, 48)
	plain := NewSource(nil, 1)
	for i := range 100 {
		at := now.Add(time.Duration(i) * time.Minute)
		same := time.UnixMilli(at.UnixMilli() * 48)
		if got, want := fast.At(c, "p", at, at), plain.At(c, "p", same, same); got != want {
			t.Fatalf("At(%s) with speed 48 = %+v, want %+v of the pattern", at, got, want)
		}
	}
}

func TestPastRunsGoOnLive(t *testing.T) {
	for _, speed := range []float64{1, 48} {
		workloads := Catalog(1, 60)
		s := NewSource(workloads, speed)
		past := Past{Start: now.Add(-14 * 24 * time.Hour), End: now}
		s.SetPast(past)

		leaks := 0
		for _, w := range workloads {
			c := &w.Containers[len(w.Containers)-1]
			if c.Profile.Kind != Leak {
				continue
			}

			leaks++
			pod := pod(w, "p-1", now.Add(-time.Minute), now.Add(-time.Minute), 0)
			if _, ok := s.Workload(pod); !ok {
				t.Fatalf("Workload(%s): none, want %s", pod.Name, w.Name)
			}

			checkLeak(t, s, w, c, pod, past)
		}

		if leaks == 0 {
			t.Error("Catalog(1, 60) has no leak, want one")
		}
	}
}

func checkLeak(t *testing.T, s *Source, w *Workload, c *Container, pod *corev1.Pod, past Past) {
	t.Helper()

	limit := bytes(c.Limit)
	born := w.Born(past, pod.CreationTimestamp.Time)
	runs := s.Runs(c, pod.Name, born, past.End)
	if len(runs) == 0 && past.End.Sub(born).Seconds() > c.Profile.Life.Seconds()/s.speed {
		t.Errorf("Runs of %s: none, want a restart within its life", w.Name)
	}

	for i, start := range runs {
		if i == 0 {
			continue
		}

		before := s.At(c, pod.Name, runs[i-1], start.Add(-time.Second)).Memory
		if before < 0.9*limit || before > 1.001*limit {
			t.Errorf("memory of %s before restart %d = %g, want about its limit %g", w.Name, i, before, limit)
		}
	}

	at := past.End.Add(time.Second)
	live := s.Use(pod, c.Name, at)
	want := s.At(c, pod.Name, s.lastRun(c, pod.Name, born, past.End), at)
	if live != want {
		t.Errorf("Use of %s after the history = %+v, want %+v as in its last run", w.Name, live, want)
	}

	// It is OOM-killed in time and restarts from its initial size.
	end := past.End.Add(time.Duration(1.1 * float64(c.Profile.Life) / s.speed))
	if u := s.Use(pod, c.Name, end); u.Memory <= limit {
		t.Errorf("memory of %s after more than its life = %g, want more than its limit %g", w.Name, u.Memory, limit)
	}

	again := restarted(pod, end)
	if u := s.Use(again, c.Name, end.Add(time.Second)); u.Memory > 0.6*limit {
		t.Errorf("memory of %s right after a restart = %g, want at most 60 %% of its limit %g", w.Name, u.Memory, limit)
	}

	newer := restarted(pod, end)
	newer.CreationTimestamp = metav1.NewTime(end)
	newer.Status.ContainerStatuses[0].RestartCount = 0
	if u := s.Use(newer, c.Name, end.Add(time.Second)); u.Memory > 0.6*limit {
		t.Errorf("memory of %s in a new pod = %g, want at most 60 %% of its limit %g", w.Name, u.Memory, limit)
	}
}

func pod(w *Workload, name string, created, started time.Time, restarts int32) *corev1.Pod {
	c := w.Containers[len(w.Containers)-1].Name
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: w.labels(), CreationTimestamp: metav1.NewTime(created)},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: c, RestartCount: restarts,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}},
		}}},
	}
}

func restarted(p *corev1.Pod, at time.Time) *corev1.Pod {
	q := p.DeepCopy()
	q.Status.ContainerStatuses[0].RestartCount = 1
	q.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(at)

	return q
}

func TestUncatalogedPodsUseLittle(t *testing.T) {
	s := NewSource(nil, 1)
	var _ kubelet.Load = s

	u := s.Use(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}, "c", now)
	if !u.Known || u.CPU <= 0 || u.Memory <= 0 || u.CPU > 0.1 {
		t.Errorf("Use of a pod outside the catalog = %+v, want more than 0 and at most 0.1 cores", u)
	}

	annotated := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"sim.crane.io/cpu": "1500m", "sim.crane.io/memory": "1Gi"}}}
	if u := s.Use(annotated, "c", now); u.CPU != 1.5 || u.Memory != 1<<30 {
		t.Errorf("Use of a pod with annotations = %+v, want 1.5 cores and 1 GiB", u)
	}
}

func BenchmarkUse(b *testing.B) {
	w := Catalog(1, 1)[0]
	s := NewSource([]*Workload{w}, 1)
	c := &w.Containers[len(w.Containers)-1]
	at := now
	for b.Loop() {
		at = at.Add(time.Minute)
		s.At(c, "checkout-5d8f7c-abcde", now, at)
	}
}
