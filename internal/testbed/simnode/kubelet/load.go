// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Use is what one container wants of a node at one moment.
type Use struct {
	// CPU is the demand in cores. What the container gets is capped by its CPU limit.
	CPU float64
	// Memory is the working set in bytes.
	Memory float64
	// Cache is the part of Memory that is page cache, in bytes: given back before a container is killed.
	Cache float64
	// Known is false where nobody can say; such a container is not measured, killed or evicted for its use.
	Known bool
}

// Load says what containers use. Implementations must be fast (it is asked for every running container at every
// sample), safe for concurrent use, and must not change the pod. The pod's status is the one that the simulated node
// reports, so that a load can start anew with a restarted container.
type Load interface {
	Use(pod *corev1.Pod, container string, at time.Time) Use
}

// Idle is a load that is known to use nothing.
type Idle struct{}

// Use implements Load.
func (Idle) Use(*corev1.Pod, string, time.Time) Use { return Use{Known: true} }

// sane turns values that no measurement can have (NaN, infinite, negative) into an unknown use.
func (u Use) sane() Use {
	for _, v := range []float64{u.CPU, u.Memory, u.Cache} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return Use{}
		}
	}
	u.Cache = min(u.Cache, u.Memory)
	return u
}

// Within is the use under a memory limit in bytes, 0 for none: page cache is given back as far as that helps. What is still
// above the limit is killed for it.
func (u Use) Within(limit float64) Use {
	if limit <= 0 || u.Memory <= limit {
		return u
	}
	given := min(u.Cache, u.Memory-limit)
	u.Memory, u.Cache = u.Memory-given, u.Cache-given
	return u
}
