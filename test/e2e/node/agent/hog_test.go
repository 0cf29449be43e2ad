// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/test/e2e/node"
)

// signal is a file of every container, initially empty and writable from outside.
const signal = "/dev/termination-log"

// batch returns the label of pods that may be affected.
func batch() map[string]string { return map[string]string{"workload": "batch"} }

// hog runs a pod that is busy while its switch is on; initially it is off.
func (f fixture) hog(t testing.TB, name string, threads string, requests, limits corev1.ResourceList) *corev1.Pod {
	t.Helper()

	pod := f.Pod(name, "cpu-hog", []string{"-threads", threads, "-switch", signal}, requests, limits)
	pod.Labels = batch()
	return f.Run(t, pod)
}

// batchPod runs a batch pod without requests.
func (f fixture) batchPod(t testing.TB, name, program string, args ...string) *corev1.Pod {
	t.Helper()

	pod := f.Pod(name, program, args, nil, nil)
	pod.Labels = batch()
	return f.Run(t, pod)
}

// turn sets the switch of a hog.
func (f fixture) turn(t testing.TB, hog *corev1.Pod, on bool) {
	t.Helper()

	value := map[bool]string{true: "1", false: "0"}[on]
	if !f.Machine() {
		// A process started in the container would use its CPU.
		if err := os.WriteFile(f.switchOf(t, hog), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}

		return
	}

	f.Eventually(t, "switch of "+hog.Name, func() error {
		_, err := f.Exec(t, hog, "/nodekit", "cgroups", "write", signal, value)
		return err
	})
}

// switchOf returns the switch of a hog on a node in namespaces, the kubelet's file that is mounted in the container. Each start of the container
// has a file of its own; the newest is that of the one which runs.
func (f fixture) switchOf(t testing.TB, hog *corev1.Pod) string {
	t.Helper()

	found, err := filepath.Glob(f.Path("/var/lib/kubelet/pods/" + string(hog.UID) + "/containers/" + hog.Spec.Containers[0].Name + "/*"))
	if err != nil || len(found) == 0 {
		t.Fatalf("switch of %s: %v, %v, want a file", hog.Name, found, err)
	}

	created := func(path string) time.Time {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}

		return info.ModTime()
	}

	return slices.MaxFunc(found, func(a, b string) int { return created(a).Compare(created(b)) })
}

// bystander runs a pod with limits that may not be affected.
func (f fixture) bystander(t testing.TB) *corev1.Pod {
	t.Helper()
	return f.Run(t, f.Pod("bystander", "latency-server", []string{"-work", "100us"}, node.Resources("50m", "16Mi"), node.Resources("500m", "64Mi")))
}

// throttleRules throttle batch pods while pod hog uses CPU. The threshold is low enough for a busy machine.
const throttleRules = `
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: busy}
spec:
  rules:
  - name: hog
    metricRule:
      name: container_cpu_total_usage
      value: 20m
      selector: {matchLabels: {PodName: hog, ContainerName: main}}
    avoidanceThreshold: 2
    restoreThreshold: 3
    actionName: calm-down
` + calmDown

// calmDown is an action that halves the CPU of batch pods per step.
const calmDown = `---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: calm-down}
spec: {coolDownSeconds: 3, throttle: {cpuThrottle: {minCPURatio: 1, stepCPURatio: 50}}}
` + batchCalmsDown

// batchCalmsDown and batchMakesRoom allow the action of that name on batch pods.
const (
	batchCalmsDown = `---
apiVersion: ensurance.crane.io/v1alpha1
kind: PodQOS
metadata: {name: batch}
spec:
  allowedActions: [calm-down]
  labelSelector: {matchLabels: {workload: batch}}
`
	batchMakesRoom = `---
apiVersion: ensurance.crane.io/v1alpha1
kind: PodQOS
metadata: {name: batch}
spec:
  allowedActions: [make-room]
  labelSelector: {matchLabels: {workload: batch}}
`
)
