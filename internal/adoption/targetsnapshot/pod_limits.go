// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/internal/kube/effectiveresources"
	"crane.io/crane/internal/kube/podlimits"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// PodChecker tries the creation of a pod without creating it.
type PodChecker interface {
	// Unavailable returns why no creation is tried; empty if Check does.
	Unavailable() string
	// Check returns why a pod of the size is refused although one of the present size is not, or why that is unknown; both are empty if the
	// pod is admitted.
	Check(ctx context.Context, c PodCheck) (refused, unknown string)
}

// PodCheck is a pod of a workload in two sizes.
type PodCheck struct {
	// Pod has the present size; it must not be changed.
	Pod  *corev1.Pod
	Next *corev1.Pod
}

// ApplySize sets the amounts of a size in the containers of a pod spec and keeps all others.
func ApplySize(spec *corev1.PodSpec, size adoption.Size) {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if r, ok := size.Containers[list[i].Name]; ok {
				SetResources(&list[i].Resources, r)
			}
		}
	}
}

// SetResources sets the amounts of a container and keeps all others.
func SetResources(resources *corev1.ResourceRequirements, size rightsize.Resources) {
	set := func(list *corev1.ResourceList, name corev1.ResourceName, q *apiresource.Quantity) {
		if q == nil {
			return
		}

		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = *q
	}

	set(&resources.Requests, corev1.ResourceCPU, cpuQuantity(size.CPURequest))
	set(&resources.Requests, corev1.ResourceMemory, memoryQuantity(size.MemoryRequest))
	set(&resources.Limits, corev1.ResourceCPU, cpuQuantity(size.CPULimit))
	set(&resources.Limits, corev1.ResourceMemory, memoryQuantity(size.MemoryLimit))
}

func cpuQuantity(v *units.MilliCPU) *apiresource.Quantity {
	if v == nil {
		return nil
	}

	return apiresource.NewMilliQuantity(int64(*v), apiresource.DecimalSI)
}

func memoryQuantity(v *units.Bytes) *apiresource.Quantity {
	if v == nil {
		return nil
	}

	return apiresource.NewQuantity(int64(*v), apiresource.BinarySI)
}

// readLimits reads the LimitRanges and ResourceQuotas of the namespace. Without the right to read the quotas, no size is given to new pods.
func (r SnapshotReader) readLimits(ctx context.Context, s *TargetSnapshot, in *adoption.Input) error {
	reader := r.Live
	if r.Limits != nil {
		reader = r.Limits
	}

	namespace := s.Object.GetNamespace()
	ranges, err := effectiveresources.LimitRanges(ctx, reader, namespace)
	if err != nil {
		return fmt.Errorf("reading the defaults of %s: %w", s, err)
	}

	s.limits.LimitRanges = ranges
	s.limits.Quotas, err = podlimits.Quotas(ctx, reader, namespace)
	if apierrors.IsForbidden(err) {
		in.Creation.Unknown = err.Error()
		return nil
	}

	return err
}

// boundDesiredSize changes the desired size to what the LimitRanges allow.
func (s *TargetSnapshot) boundDesiredSize(in *adoption.Input) {
	if s.podSpec == nil || in.DesiredSize.Replicas != nil || len(in.DesiredSize.Containers) == 0 {
		return
	}

	// The original size is that of the pods without Crane: a bound may return to it, but not exceed it.
	base := s.podSpec.DeepCopy()
	ApplySize(base, in.State.Original)
	base = effectiveresources.NewPod(base, s.limits.LimitRanges)

	goal := base.DeepCopy()
	ApplySize(goal, in.DesiredSize)
	bounds := s.limits.Clamp(goal, base)
	if len(bounds) == 0 {
		return
	}

	in.Bounds = append(slices.Clip(in.Bounds), bounds...)

	goalTemplate := TemplateSize(goal, in.DesiredSize)
	desired := in.DesiredSize.Clone()
	for name, r := range desired.Containers {
		to := goalTemplate.Containers[name]
		desired.Containers[name] = rightsize.Resources{
			CPURequest:    replaceSet(r.CPURequest, to.CPURequest),
			CPULimit:      replaceSet(r.CPULimit, to.CPULimit),
			MemoryRequest: replaceSet(r.MemoryRequest, to.MemoryRequest),
			MemoryLimit:   replaceSet(r.MemoryLimit, to.MemoryLimit),
		}
	}

	in.DesiredSize = desired
}

// replaceSet returns the second amount if the first is set.
func replaceSet[T any](v, by *T) *T {
	if v == nil || by == nil {
		return v
	}

	return by
}

// Decide decides, and repeats the decision where the API server would refuse pods of its size. decide must return the same plan for the same
// input.
func (r SnapshotReader) Decide(ctx context.Context, s *TargetSnapshot, in adoption.Input, decide func(adoption.Input) adoption.Plan) adoption.Plan {
	const maxDecisions = 3 // A raise, a step down, and neither.
	plan := decide(in)
	for range maxDecisions {
		if !changesSize(in.State, plan.State) {
			break
		}

		refused, unknown := r.checkSize(ctx, s, in, plan.State)
		switch {
		case refused != "":
			in.Creation.Refused = append(slices.Clip(in.Creation.Refused), adoption.RefusedSize{Size: plan.State.Current, Reason: refused})
		case unknown != "" && in.Creation.Unknown == "":
			in.Creation.Unknown = unknown
		default:
			return r.remarkUnchecked(plan)
		}

		plan = decide(in)
	}

	return r.remarkUnchecked(plan)
}

// remarkUnchecked adds a remark on what was not checked about new pods.
func (r SnapshotReader) remarkUnchecked(plan adoption.Plan) adoption.Plan {
	if _, hasSize := plan.State.NewPodSize(); !hasSize {
		return plan
	}

	if reason := r.untried(); reason != "" {
		plan.Remarks = append(slices.Clip(plan.Remarks), "LimitRanges and ResourceQuotas alone decide whether new pods get this size: "+reason)
	}

	return plan
}

// untried returns why the creation of pods is not tried; empty if it is.
func (r SnapshotReader) untried() string {
	if r.Pods == nil {
		return "their creation is not tried"
	}

	return r.Pods.Unavailable()
}

// changesSize reports whether running or new pods get another size.
func changesSize(before, after adoption.State) bool {
	if after.Phase == adoption.Untouched || after.Phase == adoption.Withdrawing || after.Phase == adoption.Stopped || after.Current.Replicas != nil {
		return false
	}

	sizeAfter, givesAfter := after.NewPodSize()
	sizeBefore, _ := before.NewPodSize()

	// A rollback and a return to the original size are not up for discussion. What is raised in the pause after a rollback is, and so is a size
	// that new pods did not have before the step.
	rolledBack := after.Phase == adoption.RollingBack || after.Rollbacks > before.Rollbacks
	switch {
	case after.Current.Equal(after.Original):
		return false
	case rolledBack:
		return givesAfter && !after.PreviousGiven && !sizeAfter.Equal(sizeBefore)
	}

	return !after.Current.Equal(before.Current) || !sizeAfter.Equal(sizeBefore)
}

// checkSize returns why pods of the size of a state would be refused, or why that is unknown.
func (r SnapshotReader) checkSize(ctx context.Context, s *TargetSnapshot, in adoption.Input, state adoption.State) (refused, unknown string) {
	if s.podSpec == nil {
		return "", ""
	}

	present := s.newPod()
	size, hasSize := in.State.NewPodSize()
	if !hasSize {
		size = state.Original
	}
	ApplySize(&present.Spec, size)
	next := present.DeepCopy()
	ApplySize(&next.Spec, state.Current)

	before := present.DeepCopy()
	before.Spec = *effectiveresources.NewPod(&present.Spec, s.limits.LimitRanges)
	after := next.DeepCopy()
	after.Spec = *effectiveresources.NewPod(&next.Spec, s.limits.LimitRanges)
	if reason := s.limits.ChangeRefusal([]podlimits.Change{{Before: before, After: after}}); reason != "" {
		return reason, ""
	}

	if reason := s.limits.ChangeRefusal(s.podChanges(in, state)); reason != "" {
		return reason, ""
	}

	if r.untried() != "" {
		return "", ""
	}

	refused, unknown = r.Pods.Check(ctx, PodCheck{Pod: present, Next: next})
	if refused != "" {
		refused = fmt.Sprintf("the API server refuses a pod of this size: %s", refused)
	}

	return refused, unknown
}

// podChanges returns what becomes of the running pods.
func (s *TargetSnapshot) podChanges(in adoption.Input, state adoption.State) []podlimits.Change {
	if state.Reach == adoption.NewPods {
		return nil
	}

	var out []podlimits.Change
	for i := range s.Pods {
		to := state.Current
		if state.Reach == adoption.InPlace {
			inPlace, reason := in.Pods[i].InPlaceSize(to)
			if reason != "" || in.Pods[i].NotResizable != "" {
				continue
			}

			to = inPlace
		}

		after := s.Pods[i].DeepCopy()
		ApplySize(&after.Spec, to)
		out = append(out, podlimits.Change{Before: &s.Pods[i], After: after})
	}

	return out
}

// newPod returns a pod of the template, with the controller of a running one.
func (s *TargetSnapshot) newPod() *corev1.Pod {
	pod := &corev1.Pod{Spec: *s.podSpec.DeepCopy()}
	pod.Namespace = s.Object.GetNamespace()
	pod.GenerateName = s.Object.GetName() + "-"
	if s.podMeta != nil {
		pod.Labels = s.podMeta.Labels
		pod.Annotations = s.podMeta.Annotations
	}

	if len(s.Pods) > 0 {
		pod.OwnerReferences = slices.Clone(s.Pods[0].OwnerReferences)
		for i := range pod.OwnerReferences {
			pod.OwnerReferences[i].BlockOwnerDeletion = nil // It needs another right.
		}
	}

	return pod
}
