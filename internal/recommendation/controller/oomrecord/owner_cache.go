// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oomrecord

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/pkg/oom"
)

// ownerCache finds the workloads of pods. It is used for one write, in which many kills have the same workload.
type ownerCache struct {
	reader client.Reader
	owners map[oom.Owner]oom.Owner
}

// find returns the workload of a pod: its controller, or the controller of a ReplicaSet or Job. If that is deleted or may
// not be read, it returns the direct controller. Other errors are returned if retryable is true, and otherwise lead to the
// direct controller as well.
func (c *ownerCache) find(ctx context.Context, s pendingKill, retryable bool) (oom.Owner, error) {
	if s.owner == nil {
		return oom.Owner{APIVersion: "v1", Kind: "Pod", Name: s.kill.Pod}, nil
	}

	direct := oom.Owner{APIVersion: s.owner.APIVersion, Kind: s.owner.Kind, Name: s.owner.Name}
	if direct.Kind != "ReplicaSet" && direct.Kind != "Job" {
		return direct, nil
	}

	key := direct
	key.Name = s.kill.Namespace + "/" + direct.Name
	if top, ok := c.owners[key]; ok {
		return top, nil
	}

	top := direct
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(schema.FromAPIVersionAndKind(direct.APIVersion, direct.Kind))

	// An owner that cannot be read for good, or after the retries, leaves the ReplicaSet or Job itself as the owner.
	switch err := c.reader.Get(ctx, client.ObjectKey{Namespace: s.kill.Namespace, Name: direct.Name}, object); {
	case err != nil && retryable && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err):
		return direct, fmt.Errorf("reading %s %s, which owns pod %s: %w", direct.Kind, key.Name, s.kill.Pod, err)
	case err == nil:
		if above := metav1.GetControllerOf(object); above != nil {
			top = oom.Owner{APIVersion: above.APIVersion, Kind: above.Kind, Name: above.Name}
		}
	}

	if c.owners == nil {
		c.owners = map[oom.Owner]oom.Owner{}
	}

	c.owners[key] = top
	return top, nil
}
