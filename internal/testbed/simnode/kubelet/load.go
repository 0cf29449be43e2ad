// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Use is the demand of one container at one time.
type Use struct {
	// CPU is the demand in cores. The CPU limit caps what the container gets.
	CPU float64
	// Memory is the working set in bytes.
	Memory float64
	// Cache is the part of Memory that is page cache, in bytes. It is reclaimed before a container is OOM-killed.
	Cache float64
	// Known is false if the use is unknown; such a container is not measured, killed or evicted for its use.
	Known bool
}

// Load computes the use of containers. Implementations must be fast (called for every running container at every
// sample), safe for concurrent use, and must not modify the pod. The pod's status is that of the simulated node, so
// that a load can restart with its container.
type Load interface {
	Use(pod *corev1.Pod, container string, at time.Time) Use
}

// Idle is a load of zero.
type Idle struct{}

// Use implements Load.
func (Idle) Use(*corev1.Pod, string, time.Time) Use { return Use{Known: true} }

// sane converts invalid values (NaN, infinite, negative) to an unknown use.
func (u Use) sane() Use {
	for _, v := range []float64{u.CPU, u.Memory, u.Cache} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return Use{}
		}
	}
	u.Cache = min(u.Cache, u.Memory)
	return u
}

// Within returns the use under a memory limit in bytes, 0 for none: page cache is reclaimed as far as necessary. Memory
// that still exceeds the limit leads to an OOM kill.
func (u Use) Within(limit float64) Use {
	if limit <= 0 || u.Memory <= limit {
		return u
	}
	given := min(u.Cache, u.Memory-limit)
	u.Memory, u.Cache = u.Memory-given, u.Cache-given
	return u
}
