// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/pkg/cron"
)

// maxPastRuns bounds the runs of a CronJob in a history, because each has pods and so series of its own.
const maxPastRuns = 30

// keptRuns is the number of finished Jobs that a CronJob keeps, the default of successfulJobsHistoryLimit.
const keptRuns = 3

// digest returns 64 hexadecimal characters derived from names, like a container ID.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p)) // a hash.Hash never fails
		h.Write([]byte{0})
	}

	return hex.EncodeToString(h.Sum(nil))
}

// suffix returns n characters of the alphabet of generated Kubernetes names.
func suffix(n int, parts ...string) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	sum := sha256.Sum256([]byte(digest(parts...)))
	out := make([]byte, n)
	for i := range out {
		out[i] = alphabet[int(sum[i])%len(alphabet)]
	}

	return string(out)
}

func pastUID(parts ...string) types.UID {
	d := digest(parts...)
	return types.UID(fmt.Sprintf("%s-%s-4%s-8%s-%s", d[:8], d[8:12], d[13:16], d[17:20], d[20:32]))
}

// addPredecessor adds the pod that a pod of a Deployment replaced, and its ReplicaSet.
func (b *builder) addPredecessor(pod *corev1.Pod, w *load.Workload, until time.Time) {
	deployment := pod.Namespace + "/" + w.Name
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: w.Name + "-" + suffix(10, deployment, "earlier"),
		OwnerReferences: []metav1.OwnerReference{controllerRef("Deployment", w.Name)},
	}}

	if !b.earlier[deployment] {
		b.earlier[deployment] = true
		newCollector(b.constantSink(b.grid.Start, b.grid.End, nil)).emitOwner("kube_replicaset_owner", "replicaset", &set.ObjectMeta)
	}

	before := pod.DeepCopy()
	before.Name = set.Name + "-" + suffix(5, pod.Name, "earlier")
	before.UID = pastUID(pod.Namespace, before.Name)
	before.OwnerReferences = []metav1.OwnerReference{controllerRef("ReplicaSet", set.Name)}
	before.Status.PodIP = ""

	for _, list := range [][]corev1.ContainerStatus{before.Status.ContainerStatuses, before.Status.InitContainerStatuses} {
		for i := range list {
			list[i].ContainerID = ""
		}
	}

	b.addPodSeries(before, w, b.past.Start.Add(-24*time.Hour), until)
}

func controllerRef(kind, name string) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{Kind: kind, Name: name, Controller: &yes}
}

// addCronJobs adds the runs of every CronJob.
func (b *builder) addCronJobs() error {
	for _, c := range b.objects.CronJobs {
		schedule, err := cron.Parse(c.Spec.Schedule)
		if err != nil {
			return fmt.Errorf("history of CronJob %s/%s: schedule %q: %w", c.Namespace, c.Name, c.Spec.Schedule, err)
		}

		// Only the latest runs are kept.
		var starts []time.Time
		for t := schedule.Next(b.grid.Start); !t.IsZero() && t.Before(b.grid.End); t = schedule.Next(t) {
			starts = append(starts, t)
			if len(starts) > maxPastRuns {
				starts = slices.Delete(starts, 0, 1)
			}
		}

		// A finished Job is removed when the third one after it starts.
		for i, start := range starts {
			removed := b.grid.End
			if i+keptRuns < len(starts) {
				removed = starts[i+keptRuns]
			}

			b.addCronRun(c, start, removed)
		}
	}

	return nil
}

// addCronRun adds one run: a Job with one pod, which runs for the workload's run time and is then kept as Succeeded.
func (b *builder) addCronRun(c *batchv1.CronJob, start, removed time.Time) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace:         c.Namespace,
		Name:              fmt.Sprintf("%s-%d", c.Name, start.Unix()/60),
		CreationTimestamp: metav1.NewTime(start),
		OwnerReferences:   []metav1.OwnerReference{controllerRef("CronJob", c.Name)},
	}}

	newCollector(b.constantSink(start, removed, nil)).emitJob(job)

	// The pod no longer exists: its name, UID and node are derived from the name of the Job.
	template := c.Spec.JobTemplate.Spec.Template
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Namespace = c.Namespace
	pod.Name = job.Name + "-" + suffix(5, job.Name)
	pod.UID = pastUID(pod.Namespace, pod.Name)
	pod.CreationTimestamp = job.CreationTimestamp
	pod.OwnerReferences = []metav1.OwnerReference{controllerRef("Job", job.Name)}
	pod.Status.StartTime = &pod.CreationTimestamp
	pod.Spec.NodeName = b.objects.Nodes[int(digest(pod.Name)[0])%len(b.objects.Nodes)].Name

	end := start.Add(pastRunTime)
	w, _ := b.load.Workload(pod)
	if w != nil && w.RunTime > 0 {
		end = start.Add(w.RunTime)
	}

	// Only the phase changes during the life of the pod.
	newCollector(b.constantSink(start, removed, func(name string, pairs []string) (func(time.Time) float64, bool) {
		if name != "kube_pod_status_phase" {
			return nil, true
		}

		phase := corev1.PodPhase(labelOf(pairs, "phase"))
		return func(t time.Time) float64 {
			return boolValue(phase == corev1.PodRunning && t.Before(end) || phase == corev1.PodSucceeded && !t.Before(end))
		}, true
	})).emitPod(pod)

	histories := make([]*containerHistory, 0, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		histories = append(histories, b.addContainer(pod, w, &pod.Spec.Containers[i], start, end))
	}

	b.addPodCgroup(pod, histories, end)
}

// pastRunTime is the run time of CronJobs outside the catalog.
const pastRunTime = 2 * time.Minute

// addPodCgroup adds the series of a pod's cgroup.
func (b *builder) addPodCgroup(pod *corev1.Pod, histories []*containerHistory, to time.Time) {
	shares := make([]float64, len(histories))
	for i, h := range histories {
		shares[i] = b.bandwidth(pod, h.name)
	}

	// A pod receives bytes in proportion to the CPU time of each container.
	for _, m := range podMetrics() {
		ended := false
		fill := func(dst []float64, first int) {
			for i := range dst {
				dst[i] = math.NaN()
			}

			for _, h := range histories {
				h.computeWindow(first, len(dst))
			}

			for i := range dst {
				if t, memory, ok := sum(histories, shares, i); ok {
					dst[i] = m.value(&t, memory)
				}
			}

			ended = markEnd(dst, first, b.grid, to, ended)
		}

		podSink(func(name string, _ float64, pairs ...string) { b.push(name, pairs, fill) }, pod, pod.Spec.NodeName)(m.name, 0, m.pairs...)
	}
}

// sum adds up the containers of a pod at index i of the current window.
func sum(histories []*containerHistory, shares []float64, i int) (t podTotals, memory float64, ok bool) {
	for k, h := range histories {
		if len(h.window) == 0 || math.IsNaN(h.window[i].total) {
			continue
		}

		ok = true
		t.add(h.window[i].total, shares[k])

		if m := h.window[i].memory; !math.IsNaN(m) {
			memory += m
		}
	}

	return t, memory, ok
}

func (t *podTotals) add(cpu, bandwidth float64) {
	t.cpu += cpu
	t.received += cpu * bandwidth
	t.sent += cpu * bandwidth * networkSentPart
}

// nodeHistory is the past of one node: the sum of its containers.
type nodeHistory struct {
	builder    *builder
	machine    machine
	containers []*containerHistory
	since      time.Time

	at     int // index of window[0] on the grid, -1 before the first
	window []nodeValues
	busy   float64
}

// computeWindow computes the window of n points starting at index first, unless it is the current one.
func (h *nodeHistory) computeWindow(first, n int) {
	if h.at == first {
		return
	}

	h.at = first
	if cap(h.window) < n {
		h.window = make([]nodeValues, n)
	}

	h.window = h.window[:n]
	clear(h.window)

	// The use of a node is the sum of its containers; gaps count as none.
	for _, c := range h.containers {
		c.computeWindow(first, n)
		for i := range c.window {
			m := &c.window[i]
			h.window[i].cpu += m.use
			if !math.IsNaN(m.memory) {
				h.window[i].memory += m.memory
			}
		}
	}

	grid := h.builder.grid
	for i := range h.window {
		f := &h.window[i]
		h.busy += f.cpu * grid.Step.Seconds()
		f.busy = h.busy
		f.elapsed = grid.Start.Add(time.Duration(first+i) * grid.Step).Sub(h.since).Seconds()
	}
}

// addNode adds the series of a node. It must be called after all pods were added.
func (b *builder) addNode(m machine) *nodeTotals {
	h := &nodeHistory{
		builder:    b,
		machine:    m,
		containers: b.byNode[m.name],
		since:      b.past.Start.Add(-24 * time.Hour),
		at:         -1,
	}

	if b.resumed {
		h.since = b.grid.Start.Add(-b.grid.Step)
	}

	// Live counters continue at totals once the last window has been filled.
	totals := &nodeTotals{since: h.since, until: b.grid.End}
	b.finish = append(b.finish, func() { totals.busy = h.busy })

	if m.cores <= 0 {
		return totals
	}

	// The fill functions of all series share the window of the node.
	for _, metric := range nodeMetrics() {
		m.eachSeries(metric, func(name string, pairs ...string) {
			b.push(name, pairs, func(dst []float64, first int) {
				h.computeWindow(first, len(dst))
				for i := range dst {
					dst[i] = metric.value(&h.machine, &h.window[i])
				}
			})
		})
	}

	return totals
}
