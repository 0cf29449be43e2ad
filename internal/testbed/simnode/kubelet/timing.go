// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"time"
)

// Timing holds every duration of the model. Real clusters take longer in most of them; the defaults are short so that
// a scenario can be watched. DefaultTiming gives the values and the reasons.
type Timing struct {
	// Create passes between the first sight of a pod and its sandbox (image pull included).
	Create time.Duration
	// Ready passes between the start of a container that has a readiness probe and its readiness; one without is ready
	// at once.
	Ready time.Duration
	// Init is how long a plain init container runs.
	Init time.Duration
	// Job is how long the containers of a Job's pod run where the pod does not say (AnnotationDuration).
	Job time.Duration
	// Stop is how long a container takes to end after SIGTERM; the pod's grace period bounds it.
	Stop time.Duration
	// Restart passes between the first exit of a container and its restart.
	Restart time.Duration
	// BackOff is the delay before the second restart; it doubles with each restart up to BackOffMax.
	BackOff time.Duration
	// BackOffMax bounds the delay between restarts.
	BackOffMax time.Duration
	// BackOffReset is the run time after which a container's back-off starts anew.
	BackOffReset time.Duration
	// Resize passes between the admission of a resize and the new limits being in force.
	Resize time.Duration
	// PressureHold is how long MemoryPressure stays True after the pressure has gone.
	PressureHold time.Duration
}

// DefaultTiming is the playground's: a pod runs 1 s after it was bound (on a real node with its image at hand it took 0.8
// to 1.1 s), back-off is a tenth of the kubelet's (10 s to 5 min, reset after 10 min), a resize takes 0.2 s (0.1 to 0.9 s
// on a real node), MemoryPressure stays for 30 s instead of 5 min.
func DefaultTiming() Timing {
	return Timing{
		Create: time.Second, Ready: time.Second, Init: time.Second, Job: 30 * time.Second,
		Stop: 500 * time.Millisecond, Restart: 200 * time.Millisecond, BackOff: time.Second, BackOffMax: 30 * time.Second,
		BackOffReset: time.Minute, Resize: 200 * time.Millisecond, PressureHold: 30 * time.Second,
	}
}

// Validate refuses negative durations and a back-off that shrinks.
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

// Annotations by which a pod says how its containers behave on a simulated node. A value that does not parse is
// reported by an event and ignored.
const (
	// AnnotationDuration is how long the pod's containers run before they exit, a Go duration. Pods of a Job exit after
	// Timing.Job without it, all others run until they are stopped.
	AnnotationDuration = "sim.crane.io/duration"
	// AnnotationExitCode is the exit code after that duration, 0 to 255; 0 where absent.
	AnnotationExitCode = "sim.crane.io/exit-code"
	// AnnotationReadyAfter is the time from a container's start to its readiness, a Go duration.
	AnnotationReadyAfter = "sim.crane.io/ready-after"
)
