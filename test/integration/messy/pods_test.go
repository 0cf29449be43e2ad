// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy_test

import (
	"context"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/test/messy"
)

// amountKey is the request of a resource by a container.
type amountKey struct {
	container string
	resource  corev1.ResourceName
}

// low is a request to which a running pod was lowered first at a time of craned's clock.
type low struct {
	value int64
	at    time.Time
}

// requestsOf returns the CPU requests in millicores and the memory requests in bytes.
func requestsOf(spec *corev1.PodSpec) map[amountKey]int64 {
	out := map[amountKey]int64{}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for _, c := range list {
			if v, ok := c.Resources.Requests[corev1.ResourceCPU]; ok {
				out[amountKey{c.Name, corev1.ResourceCPU}] = v.MilliValue()
			}
			if v, ok := c.Resources.Requests[corev1.ResourceMemory]; ok {
				out[amountKey{c.Name, corev1.ResourceMemory}] = v.Value()
			}
		}
	}

	return out
}

// podChanged checks a change of a running pod.
func (b *batch) podChanged(before, after *corev1.Pod) {
	for _, r := range b.runs {
		if w := r.find(after.Namespace, after.Labels[messy.LabelWorkload]); w != nil && before.UID == after.UID {
			r.checkUnchanged(before, after)
			r.checkLowering(w, before, after)
		}
	}
}

// rememberEvicted keeps a pod that craned evicts.
func (b *batch) rememberEvicted(namespace, name string) {
	pod := &corev1.Pod{}
	if err := b.world.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
		return
	}

	for _, r := range b.runs {
		if r.namespace == namespace {
			r.mu.Lock()
			r.evicted = append(r.evicted, pod)
			r.mu.Unlock()
		}
	}
}

// withoutSizes returns a pod spec without CPU and memory of containers.
func withoutSizes(spec *corev1.PodSpec) *corev1.PodSpec {
	out := spec.DeepCopy()
	for _, list := range [][]corev1.Container{out.InitContainers, out.Containers} {
		for i := range list {
			r := &list[i].Resources
			for _, amounts := range []corev1.ResourceList{r.Requests, r.Limits} {
				delete(amounts, corev1.ResourceCPU)
				delete(amounts, corev1.ResourceMemory)
			}
		}
	}

	return out
}

// checkUnchanged checks that nothing but sizes of a pod changed: invariant 6.
func (r *run) checkUnchanged(before, after *corev1.Pod) {
	if before.Status.QOSClass != "" && before.Status.QOSClass != after.Status.QOSClass {
		r.violatef(6, "pod %s has QoS class %s, want %s as before", after.Name, after.Status.QOSClass, before.Status.QOSClass)
	}

	// The scheduler sets the node, and controllers of pods change none that runs.
	want, got := withoutSizes(&before.Spec), withoutSizes(&after.Spec)
	if before.Spec.NodeName != "" && !equality.Semantic.DeepEqual(want, got) {
		r.violatef(6, "the spec of pod %s has changed beside CPU and memory (-want +got):\n%s", after.Name, cmp.Diff(want, got))
	}

	if !equality.Semantic.DeepEqual(before.Labels, after.Labels) || !equality.Semantic.DeepEqual(before.Annotations, after.Annotations) {
		r.violatef(6, "pod %s has labels %v and annotations %v, want %v and %v as before", after.Name, after.Labels, after.Annotations, before.Labels, before.Annotations)
	}
}

// checkLowering checks that a lowered request is a step: invariant 2.
func (r *run) checkLowering(w *workload, before, after *corev1.Pod) {
	r.mu.Lock()
	var found []string
	now := r.batch.clock.Now()
	old := requestsOf(&before.Spec)
	for key, value := range requestsOf(&after.Spec) {
		was, ok := old[key]
		if !ok || value == was {
			continue
		}

		if value < was {
			r.counts.lowered++
		}

		if text := w.lower(r.batch, key, was, value, now); text != "" {
			found = append(found, text)
		}
	}
	r.mu.Unlock()

	for _, text := range found {
		r.violatef(2, "pod %s: %s", after.Name, text)
	}
}

// lower records that a request of a running pod changed, and returns what is wrong with it.
func (w *workload) lower(b *batch, key amountKey, was, value int64, now time.Time) string {
	last, known := w.lows[key]
	if value > was {
		if known && value > last.value {
			w.lows[key] = low{value, last.at}
		}

		return ""
	}

	natural, ok := w.natural[key]
	if !ok || value >= natural {
		return "" // Back to what the owner wants.
	}

	from := was
	if known {
		from = min(was, last.value)
	}
	if value >= from {
		return "" // Others had it before.
	}

	w.lows[key] = low{value, now}
	slack := int64(1)
	if key.resource == corev1.ResourceMemory {
		slack = 1 << 20
	}

	if least := int64(float64(from)*(1-float64(b.policy.Step))) - slack; value < least {
		return formatf("%s of %s went from %d to %d, want at least %d after one step", key.resource, key.container, from, value, least)
	}

	if known && now.Sub(last.at) < b.policy.Watch {
		return formatf("%s of %s went down to %d at %s, %s after it went down to %d, want at least %s", key.resource, key.container, value,
			now.Format(time.TimeOnly), now.Sub(last.at), last.value, b.policy.Watch)
	}

	return ""
}
