// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/condition"
	"crane.io/crane/pkg/adoption"
)

const (
	// reasonFailedCreate is the reason of the events and of the condition ReplicaFailure that controllers report when they cannot create a pod.
	reasonFailedCreate = "FailedCreate"
	// textExceededQuota is part of the API server's answer for a pod that a quota has no room for. Its check is the last of all.
	textExceededQuota = "exceeded quota: "
)

// LacksPods reports whether the status of a workload shows that it has fewer pods than it should, or that one cannot be created.
func LacksPods(o client.Object) bool {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return o.Status.Replicas < ptr.Deref(o.Spec.Replicas, 1) || replicaFailure(o) != nil
	case *appsv1.StatefulSet:
		return o.Status.Replicas < ptr.Deref(o.Spec.Replicas, 1)
	case *appsv1.DaemonSet:
		return o.Status.CurrentNumberScheduled < o.Status.DesiredNumberScheduled
	case *batchv1.CronJob:
		return len(o.Status.Active) > 0
	}

	return false
}

// replicaFailure returns the condition of a Deployment with a ReplicaSet that cannot create a pod; nil without one.
func replicaFailure(d *appsv1.Deployment) *appsv1.DeploymentCondition {
	for i := range d.Status.Conditions {
		c := &d.Status.Conditions[i]
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue && c.Reason == reasonFailedCreate {
			return c
		}
	}

	return nil
}

// readCreation reads whether pods are missing, and why.
func (r SnapshotReader) readCreation(ctx context.Context, s *TargetSnapshot, in *adoption.Input) error {
	c := &in.Creation
	if s.selector != nil {
		c.Missing = max(0, int(s.desiredReplicas)-len(s.Pods))
	}

	switch o := s.Object.(type) {
	case *appsv1.Deployment:
		failure := replicaFailure(o)
		if failure == nil {
			return nil
		}

		// During a roll-out the pods of the earlier ReplicaSet are still counted.
		c.Missing = max(c.Missing, 1)
		c.RefusedAt = failure.LastTransitionTime.Time
		c.Message = failure.Message

		// The condition keeps the time and the message of the first refusal.
		if err := r.readFailedCreates(ctx, s, c, client.MatchingFields{"involvedObject.kind": "ReplicaSet"}, s.podOwners); err != nil {
			return err
		}

	case *batchv1.CronJob:
		for i := range o.Status.Active {
			job := o.Status.Active[i].UID
			fields := client.MatchingFields{"involvedObject.uid": string(job)}
			if err := r.readFailedCreates(ctx, s, c, fields, map[types.UID]bool{job: true}); err != nil {
				return err
			}
		}

		if !c.RefusedAt.IsZero() {
			c.Missing = 1
		}

	default:
		if c.Missing == 0 {
			break
		}

		fields := client.MatchingFields{"involvedObject.uid": string(s.Object.GetUID())}
		if len(s.ownerKinds()) > 0 { // It or another object creates the pods.
			fields = client.MatchingFields{}
		}

		if err := r.readFailedCreates(ctx, s, c, fields, s.podOwners); err != nil {
			return err
		}
	}

	c.ByQuota = strings.Contains(c.Message, textExceededQuota)
	c.Message = condition.Message(c.Message) // The state, an annotation, keeps it. Whoever may create events chose its length.
	return nil
}

// readFailedCreates reads the last event about a pod that one of the owners could not create, among those with the fields.
func (r SnapshotReader) readFailedCreates(
	ctx context.Context, s *TargetSnapshot, c *adoption.Creation, fields client.MatchingFields, owners map[types.UID]bool,
) error {
	fields["reason"] = reasonFailedCreate

	var list corev1.EventList
	if err := r.Live.List(ctx, &list, client.InNamespace(s.Object.GetNamespace()), fields); err != nil {
		return fmt.Errorf("listing the events of %s: %w", s, err)
	}

	for i := range list.Items {
		e := &list.Items[i]
		if !owners[e.InvolvedObject.UID] {
			continue
		}

		at := e.CreationTimestamp.Time
		for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time} {
			if t.After(at) {
				at = t
			}
		}
		if e.Series != nil && e.Series.LastObservedTime.After(at) {
			at = e.Series.LastObservedTime.Time
		}

		if at.After(c.RefusedAt) {
			c.RefusedAt = at
			c.Message = e.Message
		}
	}

	return nil
}
