// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/messy"
)

// maxUndo is the longest time from the first refused pod until pods are created again.
const maxUndo = 30 * time.Second

// asRecommended is the message of a status that says that nothing is left to do.
const asRecommended = "as recommended"

// check checks the invariants after a round.
func (r *run) check(ctx context.Context) error {
	writes := r.batch.writes.take(r.namespace)
	calm := r.round > len(r.Events) || r.Events[r.round-1].Kind == messy.Nothing
	quietRound := calm && r.calm // What the first recommendation causes is over then.
	r.calm = calm
	underWay := 0
	refused := slices.ContainsFunc(writes, write.refused)
	for _, w := range r.workloads {
		if w.owned == nil {
			continue
		}

		o, err := r.read(ctx, w)
		if err != nil {
			return err
		}

		text := o.GetAnnotations()[analysisv1alpha1.AnnotationAdoption]
		state, err := adoption.ParseState(text)
		if err != nil {
			r.violatef(4, "%s has an adoption state that cannot be read: %v", w.Name, err)
		}

		quietRound = quietRound && text == w.state
		w.state = text
		w.stopped = w.stopped || state.Phase == adoption.Stopped
		if state.UnderWay() {
			underWay++
		}

		p, err := r.checkProbe(ctx, w, state)
		if err != nil {
			return err
		}

		message, err := r.checkStatus(ctx, w, p)
		if err != nil {
			return err
		}

		refused = refused || strings.Contains(message, "LimitRange") || strings.Contains(message, "ResourceQuota") || strings.Contains(message, "refuse")
		r.checkEvictions(w, p)
	}

	if most := r.batch.policy.MaxPerNamespace; underWay > most {
		r.violatef(2, "%d workloads are lowered or watched at once, want at most %d", underWay, most)
	}

	r.checkWrites(writes, quietRound)
	r.count(writes, refused)
	r.evicted = nil
	return nil
}

// count counts what craned did in a round.
func (r *run) count(writes []write, refused bool) {
	acted := slices.ContainsFunc(writes, func(w write) bool { return !w.dryRun && w.code < 300 && w.resource != "recommendations" })
	if acted || refused {
		r.counts.acted++
	}
	if refused {
		r.counts.refused++
	}
}

// checkProbe checks that a new pod is admitted if it is without Crane, and that Crane changes its size alone: invariants 1 and 6.
func (r *run) checkProbe(ctx context.Context, w *workload, state adoption.State) (*probe, error) {
	p, err := r.tryPod(ctx, w)
	if err == nil {
		p, err = r.confirm(ctx, w, p)
	}
	if p == nil || err != nil {
		return nil, err
	}

	r.mu.Lock()
	w.natural = nil
	if p.without != nil {
		w.natural = requestsOf(&p.without.Spec)
	}
	r.mu.Unlock()

	switch {
	case p.without != nil && p.with == nil:
		return p, r.checkRefusal(ctx, w, state, p)
	case p.without != nil && p.with != nil:
		r.checkSameButSize(w, p)
	}

	w.uncreatable = time.Time{}
	return p, nil
}

// checkRefusal checks a pod that is refused because of Crane. A rule that craned cannot read is found by the first pod that is not created,
// and by a dry run before the step where craned has the right to it.
func (r *run) checkRefusal(ctx context.Context, w *workload, state adoption.State, p *probe) error {
	const format = "a new pod of %s is refused: %s; want it created, as without Crane (new pods get %v)"
	if !strings.Contains(p.refusal, refusedByPolicy) {
		r.violatef(1, format, w.Name, p.refusal, state.NewPods)
		return nil
	}

	const cached = 11 * time.Minute
	if r.batch.triesPods && state.ChangedAt.Sub(r.policyAt) > cached {
		r.violatef(1, format, w.Name, p.refusal, state.NewPods)
	}

	failed, err := r.failedCreate(ctx, w)
	if err != nil || !failed {
		return err
	}

	switch {
	case w.uncreatable.IsZero():
		w.uncreatable = time.Now()
	case time.Since(w.uncreatable) > maxUndo:
		r.violatef(1, "since %s "+format, time.Since(w.uncreatable).Round(time.Second), w.Name, p.refusal, state.NewPods)
	}

	return nil
}

// failedCreate reports whether pods of the workload are missing although their controller tried to create them.
func (r *run) failedCreate(ctx context.Context, w *workload) (bool, error) {
	o, err := r.read(ctx, w)
	if err != nil || !targetsnapshot.LacksPods(o) {
		return false, err
	}

	var list corev1.EventList
	if err := admin.List(ctx, &list, client.InNamespace(r.namespace), client.MatchingFields{"reason": "FailedCreate"}); err != nil {
		return false, fmt.Errorf("listing the events of %s: %w", r.namespace, err)
	}

	return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
		return strings.HasPrefix(e.InvolvedObject.Name, w.Name) && strings.Contains(e.Message, refusedByPolicy)
	}), nil
}

// checkSameButSize checks that a new pod differs from one without Crane in CPU and memory alone.
func (r *run) checkSameButSize(w *workload, p *probe) {
	if want, got := withoutSizes(&p.without.Spec), withoutSizes(&p.with.Spec); !equality.Semantic.DeepEqual(want, got) {
		r.violatef(6, "a new pod of %s differs from one without Crane in more than CPU and memory (-want +got):\n%s", w.Name, cmp.Diff(want, got))
	}

	// Pods without any request get the recommended ones.
	before, after := p.without.Status.QOSClass, p.with.Status.QOSClass
	if before != after && before != corev1.PodQOSBestEffort {
		r.violatef(6, "a new pod of %s has QoS class %s, want %s as without Crane", w.Name, after, before)
	}
}

// checkStatus checks that the status says "as recommended" only about pods that have the recommended size: invariant 4. It returns all texts.
func (r *run) checkStatus(ctx context.Context, w *workload, p *probe) (string, error) {
	rec := &analysisv1alpha1.Recommendation{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: w.Name}, rec); err != nil {
		return "", err
	}

	status := rec.Status.Adoption
	if status == nil {
		return "", nil
	}

	text := status.Message + "\n" + strings.Join(status.Remarks, "\n")
	if status.Message != asRecommended || w.off || w.optedOut || w.VPA != "" || w.Autoscaled {
		return text, nil
	}

	pods, err := r.batch.world.podsOf(ctx, r.namespace, w.Name)
	if err != nil {
		return "", err
	}

	if w.Reach == "NewPods" {
		pods = nil
		if p != nil && p.with != nil {
			pods = []corev1.Pod{*p.with}
		}
	}

	for i := range pods {
		r.checkAsRecommended(w, &pods[i])
	}

	return text, nil
}

// checkAsRecommended checks the requests of a pod. Amounts that a running pod lacks cannot be added.
func (r *run) checkAsRecommended(w *workload, pod *corev1.Pod) {
	policy := r.batch.policy
	got := requestsOf(&pod.Spec)
	for _, c := range w.Containers {
		for key, want := range map[amountKey]int64{
			{c.Name, corev1.ResourceCPU}:    max(c.Wanted.CPU, int64(policy.MinCPU)),
			{c.Name, corev1.ResourceMemory}: max(c.Wanted.Memory<<20, int64(policy.MinMemory)),
		} {
			have, ok := got[key]
			if !ok || key.resource == corev1.ResourceMemory && c.Wanted.Memory == 0 {
				continue
			}

			tolerance := 2 * float64(policy.MinChange) * float64(max(have, want))
			if diff := float64(have - want); diff > tolerance || -diff > tolerance {
				r.violatef(4, "the status of %s is %q, but pod %s (%s) requests %d %s in %s, want %d (state %s)", w.Name, asRecommended, pod.Name,
					pod.Status.Phase, have, key.resource, c.Name, want, w.state)
			}
		}
	}
}

// checkEvictions checks that the pods that replace evicted ones have another size: invariant 5.
func (r *run) checkEvictions(w *workload, p *probe) {
	if p == nil || p.with == nil {
		return
	}

	for _, pod := range r.evicted {
		if pod.Labels[messy.LabelWorkload] != w.Name || pod.Labels["pod-template-hash"] != p.with.Labels["pod-template-hash"] {
			continue
		}

		if equality.Semantic.DeepEqual(requestsOf(&pod.Spec), requestsOf(&p.with.Spec)) {
			r.violatef(5, "craned evicted pod %s, which requests %v like a new pod, want no eviction that changes nothing", pod.Name, requestsOf(&pod.Spec))
		}
	}
}

// checkWrites checks that each write changes something: invariant 5.
func (r *run) checkWrites(writes []write, quietRound bool) {
	for _, w := range writes {
		if w.subresource == "resize" && w.code < 300 && !w.dryRun {
			last := max(1, r.generations[w.uid])
			if w.generation <= last {
				r.violatef(5, "craned resized pod %s, whose generation is %d as before, want no write that changes nothing", w.name, w.generation)
			}

			r.generations[w.uid] = w.generation
		}

		changes := w.resource != "recommendations" && !w.dryRun && w.code < 300 && w.subresource != "resize"
		if quietRound && changes {
			r.violatef(5, "craned sent %s %s/%s/%s in a round without an event and with the same state, want no write", w.verb, w.resource, w.name, w.subresource)
		}
	}
}

// checkRestored checks what adoption leaves after it was switched off: invariant 3. It keeps the violations of earlier rounds.
func (r *run) checkRestored(ctx context.Context) error {
	r.violations = r.violations[:r.earlier]
	for _, w := range r.workloads {
		if w.owned == nil || w.stopped {
			continue // Crane leaves everything where an owner changed what it had set.
		}

		o, err := r.read(ctx, w)
		if err != nil {
			return err
		}

		// The recommended value stays in its annotation, with the adoption type StatusAndAnnotation.
		if value, ok := o.GetAnnotations()[analysisv1alpha1.AnnotationAdoption]; ok {
			r.violatef(3, "%s has adoption state %s after adoption was switched off, want none", w.Name, value)
		}

		t, err := template(o)
		if err != nil {
			return err
		}
		if !equality.Semantic.DeepEqual(t, w.owned) {
			r.violatef(3, "the template of %s after adoption was switched off (-want +got):\n%s", w.Name, cmp.Diff(w.owned, t))
		}

		if err := r.checkRestoredPods(ctx, w); err != nil {
			return err
		}
	}

	return nil
}

// checkRestoredPods checks that running pods have what they would have without Crane. Pods from before a change of the rules or of the template
// have what these said then, and amounts that a pod would lack cannot be removed from it.
func (r *run) checkRestoredPods(ctx context.Context, w *workload) error {
	if w.Reach == "NewPods" || w.Reach == "Recreate" {
		return nil // Running pods keep what they have: nothing is evicted to restore a size.
	}

	p, err := r.tryPod(ctx, w)
	if p == nil || p.without == nil || err != nil {
		return err
	}

	pods, err := r.batch.world.podsOf(ctx, r.namespace, w.Name)
	if err != nil {
		return err
	}

	want := requestsOf(&p.without.Spec)
	for i := range pods {
		pod := &pods[i]
		created := r.batch.clock.shifted(pod.CreationTimestamp.Time)
		if !created.After(r.rulesAt) || pod.Status.Phase != corev1.PodRunning || resizing(pod) || pod.Labels["pod-template-hash"] != p.without.Labels["pod-template-hash"] {
			continue
		}

		for key, got := range requestsOf(&pod.Spec) {
			if natural, ok := want[key]; ok && got != natural {
				r.violatef(3, "pod %s requests %d %s in %s after adoption was switched off, want %d as without Crane", pod.Name, got, key.resource, key.container, natural)
			}
		}
	}

	return nil
}

// resizing reports whether the kubelet has not carried out the last resize of a pod.
func resizing(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return (c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress) && c.Status == corev1.ConditionTrue
	})
}
