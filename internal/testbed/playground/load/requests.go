// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// sized returns a container with realistic requests and limits: most request several times their use, some too little,
// some nothing. The shares are round figures, not from a study.
func sized(key uint64, name string, p Profile, isInit bool) Container {
	c := Container{Name: name, Init: isInit, Profile: p, Request: corev1.ResourceList{}, Limit: corev1.ResourceList{}}
	high, peak := p.High, p.High*1.2
	if p.Kind == Bursty {
		high = p.High * 0.5
	}
	memory := p.Memory + p.Busy + p.Grow
	draw := unit(mix(key, 40))
	switch {
	case p.Kind == Leak: // OOM-killed at its limit
		c.Request[corev1.ResourceMemory] = mebibytes(p.Memory * 1.3)
		c.Limit[corev1.ResourceMemory] = mebibytes(memory)
		c.Request[corev1.ResourceCPU] = roundCPU(high * 2)
		c.Profile.Grow = bytes(c.Limit) - p.Memory
		return c
	case draw < 0.1: // no requests, no limits
		return c
	case draw < 0.22: // requests too little
		c.Request[corev1.ResourceCPU] = roundCPU(high * between(mix(key, 41), 0.4, 0.7))
		c.Request[corev1.ResourceMemory] = roundMemory(memory * between(mix(key, 42), 0.6, 0.85))
		return c
	}
	factor := between(mix(key, 41), 1.5, 4)
	if p.Kind == Idle && !isInit {
		factor *= 20 // requests of idle services are rarely reviewed
	}
	cpu := roundCPU(high * factor)
	ram := roundMemory(memory * between(mix(key, 42), 1.2, 2.2))
	c.Request[corev1.ResourceCPU], c.Request[corev1.ResourceMemory] = cpu, ram
	if unit(mix(key, 43)) < 0.6 {
		c.Limit[corev1.ResourceMemory] = roundMemory(math.Max(ram.AsApproximateFloat64(), memory*1.15))
	}
	if unit(mix(key, 44)) < 0.35 {
		c.Limit[corev1.ResourceCPU] = roundCPU(math.Max(cpu.AsApproximateFloat64(), peak))
	}
	return c
}

// roundCPU rounds up to a commonly configured quantity.
func roundCPU(v float64) resource.Quantity {
	for _, m := range []float64{10, 20, 50, 100, 200, 250, 500, 750, 1000, 1500, 2000, 3000, 4000, 6000, 8000} {
		if v*1000 <= m {
			return milliCPU(m / 1000)
		}
	}
	return milliCPU(math.Ceil(v))
}

func roundMemory(v float64) resource.Quantity {
	for _, m := range []float64{32, 64, 100, 128, 200, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288} {
		if v <= m*mib {
			return mebibytes(m * mib)
		}
	}
	return mebibytes(math.Ceil(v/(1<<30)) * (1 << 30))
}
