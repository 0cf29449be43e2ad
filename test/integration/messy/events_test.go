// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/test/messy"
)

// owner is the field manager of the owner of the workloads.
const owner = client.FieldOwner("owner")

// create creates the namespace with everything in it.
func (r *run) create(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace, Labels: r.Namespace.Labels()}}
	if err := admin.Create(ctx, ns); err != nil {
		return err
	}

	account := &corev1.ServiceAccount{}
	for apierrors.IsNotFound(admin.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "default"}, account)) {
		time.Sleep(20 * time.Millisecond)
	}

	// The quota must be counted before pods use it, as it is in a namespace that is older than its workloads.
	for _, o := range r.Namespace.Objects(r.namespace) {
		if err := admin.Create(ctx, o); err != nil {
			return err
		}
	}

	r.rulesAt = r.batch.clock.Now()
	r.policyAt = r.rulesAt
	for _, spec := range r.Case.Workloads {
		w := &workload{Workload: spec, lows: map[amountKey]low{}}
		r.workloads = append(r.workloads, w)
		if err := r.createWorkload(ctx, w); err != nil {
			return err
		}
	}

	return nil
}

func (r *run) createWorkload(ctx context.Context, w *workload) error {
	o := w.Object(r.namespace)
	err := admin.Create(ctx, o, owner)
	if apierrors.IsInvalid(err) { // The generator draws such workloads rarely; they are not created.
		r.violatef(0, "the generator drew an invalid workload: %v", err)
		return nil
	}
	if err != nil {
		return err
	}

	drawn, err := template(o)
	if err != nil {
		return err
	}

	w.owned = drawn.DeepCopy()
	for _, beside := range w.Beside(r.namespace) {
		if err := admin.Create(ctx, beside, owner); err != nil && !meta.IsNoMatchError(err) {
			return err
		}
	}

	rec := w.Recommendation(r.namespace)
	if err := admin.Create(ctx, rec); err != nil {
		return err
	}

	return r.recommend(ctx, w, w.Containers)
}

// recommend writes recommended requests.
func (r *run) recommend(ctx context.Context, w *workload, containers []messy.Container) error {
	w.Containers = containers
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"recommendedValue": messy.RecommendedValue(containers)}})
	if err != nil {
		return err
	}

	return admin.Status().Patch(ctx, w.Recommendation(r.namespace), client.RawPatch(types.MergePatchType, patch))
}

// applyEvent applies the event of the round.
func (r *run) applyEvent(ctx context.Context) error {
	if r.round > len(r.Events) {
		return nil
	}

	e := r.Events[r.round-1]
	if e.Kind != messy.Nothing {
		r.counts.events++
	}

	w := r.workloads[e.Workload]
	var err error
	switch e.Kind {
	case messy.DeletePod, messy.Drain, messy.Crash:
		err = r.disturb(ctx, w, e.Kind)
	case messy.RollOut:
		err = r.editTemplate(ctx, w, func(t *corev1.PodTemplateSpec) {
			metav1.SetMetaDataAnnotation(&t.ObjectMeta, "round", strconv.Itoa(r.round))
		})
	case messy.Edit:
		err = r.edit(ctx, w, e.Containers)
	case messy.Scale:
		err = r.scale(ctx, w, e.Replicas)
	case messy.Recommend:
		err = r.recommend(ctx, w, e.Containers)
	case messy.Off, messy.On:
		err = r.setAdoption(ctx, w, e.Kind == messy.Off)
	case messy.OptOut, messy.OptIn:
		err = r.setOptOut(ctx, w, e.Kind == messy.OptOut)
	default:
		err = r.changeRules(ctx, e)
	}

	// Others may have been faster, and users make mistakes.
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsTooManyRequests(err) {
		return nil
	}

	return err
}

// disturb deletes or evicts pods, or kills a container.
func (r *run) disturb(ctx context.Context, w *workload, kind messy.EventKind) error {
	pods, err := r.batch.world.podsOf(ctx, r.namespace, w.Name)
	if err != nil {
		return err
	}

	for i := range pods {
		pod := &pods[i]
		switch kind {
		case messy.DeletePod:
			return admin.Delete(ctx, pod)
		case messy.Crash:
			// It fails for a container that does not run.
			_ = simulated.KillContainer(pod.Namespace, pod.Name, pod.Spec.Containers[0].Name, 1)
			return nil
		case messy.Drain:
			err = errors.Join(err, ignoreRefusals(admin.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			})))
		}
	}

	return err
}

// ignoreRefusals drops the answers for evictions that a budget refuses.
func ignoreRefusals(err error) error {
	if apierrors.IsTooManyRequests(err) || apierrors.IsNotFound(err) {
		return nil
	}

	return err
}

// read reads the workload.
func (r *run) read(ctx context.Context, w *workload) (client.Object, error) {
	o := emptyWorkload(w.Kind)
	return o, admin.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: w.Name}, o)
}

// editTemplate changes the template as its owner does, beside what craned may have written into it.
func (r *run) editTemplate(ctx context.Context, w *workload, edit func(*corev1.PodTemplateSpec)) error {
	for range 5 {
		o, err := r.read(ctx, w)
		if err != nil {
			return err
		}

		t, err := template(o)
		if err != nil {
			return err
		}

		edit(t)
		err = admin.Update(ctx, o, owner)
		if apierrors.IsConflict(err) {
			continue
		}
		if err == nil {
			edit(w.owned)
		}

		return err
	}

	return nil
}

// edit sets other resources in the template.
func (r *run) edit(ctx context.Context, w *workload, containers []messy.Container) error {
	r.rulesAt = r.batch.clock.Now()
	edited := w.Workload
	edited.Containers = containers
	wanted := edited.Template()

	clear(w.lows)
	return r.editTemplate(ctx, w, func(t *corev1.PodTemplateSpec) {
		for i := range t.Spec.Containers {
			t.Spec.Containers[i].Resources = wanted.Spec.Containers[i].Resources
		}
	})
}

func (r *run) scale(ctx context.Context, w *workload, replicas int32) error {
	if w.Kind == "DaemonSet" {
		return nil
	}

	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	return admin.Patch(ctx, w.Object(r.namespace), client.RawPatch(types.MergePatchType, patch), owner)
}

func (r *run) setAdoption(ctx context.Context, w *workload, off bool) error {
	adoptionType := analysisv1alpha1.AdoptionTypeAuto
	if off {
		adoptionType = analysisv1alpha1.AdoptionTypeStatusAndAnnotation
	}

	w.off = off
	patch := fmt.Appendf(nil, `{"spec":{"adoptionType":%q}}`, adoptionType)
	return admin.Patch(ctx, w.Recommendation(r.namespace), client.RawPatch(types.MergePatchType, patch))
}

func (r *run) setOptOut(ctx context.Context, w *workload, optedOut bool) error {
	value := "null"
	if optedOut {
		value = strconv.Quote(analysisv1alpha1.LabelAdoptionOff)
	}

	w.optedOut = optedOut
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, analysisv1alpha1.LabelAdoption, value)
	return admin.Patch(ctx, w.Object(r.namespace), client.RawPatch(types.MergePatchType, patch), owner)
}

// changeRules changes the rules of the namespace.
func (r *run) changeRules(ctx context.Context, e messy.Event) error {
	if e.Kind == messy.Nothing {
		return nil
	}

	r.rulesAt = r.batch.clock.Now()
	switch e.Kind {
	case messy.PolicyAppears, messy.PolicyGone:
		value := "null"
		if e.Kind == messy.PolicyAppears {
			value = strconv.Quote(strconv.FormatInt(e.MinCPU, 10))
		}

		r.policyAt = r.batch.clock.Now()
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, messy.LabelMinCPU, value)
		return admin.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}, client.RawPatch(types.MergePatchType, patch))
	case messy.LimitRangeAppears, messy.LimitRangeGone:
		return r.replace(ctx, &corev1.LimitRange{}, e.LimitRange != nil, func() client.Object { return e.LimitRange.Object(r.namespace, "limits-0") })
	}

	return r.replace(ctx, &corev1.ResourceQuota{}, e.Quota != nil, func() client.Object { return e.Quota.Object(r.namespace, "quota-0") })
}

// replace deletes all objects of a kind and creates another one.
func (r *run) replace(ctx context.Context, kind client.Object, appears bool, object func() client.Object) error {
	if err := admin.DeleteAllOf(ctx, kind, client.InNamespace(r.namespace)); err != nil {
		return err
	}
	if !appears {
		return nil
	}

	return admin.Create(ctx, object())
}

// switchOff ends the adoption of all workloads.
func (r *run) switchOff(ctx context.Context) error {
	for _, w := range r.workloads {
		if w.owned == nil {
			continue
		}

		if err := errors.Join(r.setOptOut(ctx, w, false), r.setAdoption(ctx, w, true)); err != nil {
			return err
		}
	}

	return nil
}
