// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"time"
)

// Timing contains every duration of the model. Most take longer in real clusters; the defaults are short so that
// scenarios can be watched. See DefaultTiming for values and reasons.
type Timing struct {
	// Create is the time between the first observation of a pod and its sandbox (image pull included).
	Create time.Duration
	// Ready is the time between the start of a container with a readiness probe and its readiness; others are ready
	// immediately.
	Ready time.Duration
	// Init is the run time of a plain init container.
	Init time.Duration
	// Job is the run time of the containers of a Job's pod without AnnotationDuration.
	Job time.Duration
	// Stop is the time that a container takes to exit after SIGTERM, bounded by the pod's grace period.
	Stop time.Duration
	// Restart is the time between the first exit of a container and its restart.
	Restart time.Duration
	// BackOff is the delay before the second restart; it doubles with each restart up to BackOffMax.
	BackOff time.Duration
	// BackOffMax bounds the delay between restarts.
	BackOffMax time.Duration
	// BackOffReset is the run time after which a container's backoff is reset.
	BackOffReset time.Duration
	// Resize is the time between the admission and the application of a resize.
	Resize time.Duration
	// PressureHold is the time for which MemoryPressure stays True after the last excess.
	PressureHold time.Duration
}

// DefaultTiming returns the playground's timing: a pod runs 1 s after it was bound (0.8 to 1.1 s on a real node with
// its image), backoff is a tenth of the kubelet's (10 s to 5 min, reset after 10 min), a resize takes 0.2 s (0.1 to 0.9
// s on a real node), MemoryPressure stays for 30 s instead of 5 min.
func DefaultTiming() Timing {
	return Timing{
		Create: time.Second, Ready: time.Second, Init: time.Second, Job: 30 * time.Second,
		Stop: 500 * time.Millisecond, Restart: 200 * time.Millisecond, BackOff: time.Second, BackOffMax: 30 * time.Second,
		BackOffReset: time.Minute, Resize: 200 * time.Millisecond, PressureHold: 30 * time.Second,
	}
}

// Validate returns an error for negative durations and a decreasing backoff.
func (t Timing) Validate() error {
	for name, d := range map[string]time.Duration{
		"create": t.Create, "ready": t.Ready, "init": t.Init, "job": t.Job, "stop": t.Stop, "restart": t.Restart,
		"backOff": t.BackOff, "backOffMax": t.BackOffMax, "backOffReset": t.BackOffReset, "resize": t.Resize,
		"pressureHold": t.PressureHold,
	} {
		if d < 0 {
			return fmt.Errorf("timing.%s: %v is negative", name, d)
		}
	}
	if t.BackOffMax < t.BackOff {
		return fmt.Errorf("timing.backOffMax: %v is less than backOff (%v)", t.BackOffMax, t.BackOff)
	}
	return nil
}

// Annotations that define how a pod's containers behave on a simulated node. Invalid values are reported by an event
// and ignored.
const (
	// AnnotationDuration is the run time of the pod's containers, a Go duration. Without it pods of a Job exit after
	// Timing.Job, all others run until they are stopped.
	AnnotationDuration = "sim.crane.io/duration"
	// AnnotationExitCode is the exit code after that duration, 0 to 255; 0 where absent.
	AnnotationExitCode = "sim.crane.io/exit-code"
	// AnnotationReadyAfter is the time from a container's start to its readiness, a Go duration.
	AnnotationReadyAfter = "sim.crane.io/ready-after"
)
