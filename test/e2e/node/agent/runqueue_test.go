// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"crane.io/crane/config"
	"crane.io/crane/test/e2e/node"
)

// queueRules name the metric, so that run queues are sampled, and throttle batch pods whose threads wait for each other.
const queueRules = `
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: queues}
spec:
  rules:
  - name: waits
    metricRule: {name: container_run_queue_wait_ratio, value: 500m, selector: {matchLabels: {PodName: hog}}}
    actionName: calm-down
` + calmDown

// TestRunQueueWait checks that with the component for the host's PID namespace the agent measures how long threads wait for a CPU, and
// that rules act on it.
func TestRunQueueWait(t *testing.T) {
	f := newFixture(t, node.Options{})
	// Twice the number of CPUs: together they wait as long as half of them.
	threads := 2 * max(runtime.NumCPU(), 2)
	hog := f.hog(t, "hog", strconv.Itoa(threads), nil, nil)
	f.apply(t, queueRules)
	d := f.deploySet(t, f.component(t, "run-queue-wait", f.daemonSet(t, enforceThrottle()...)))
	series := fmt.Sprintf("crane_agent_pod_run_queue_wait_ratio{namespace=%q,pod=%q,uid=%q}", hog.Namespace, hog.Name, hog.UID)

	value := func(ok func(float64) bool) func() error {
		return func() error {
			v, err := d.metric(t.Context(), series)
			if err == nil && !ok(v) {
				err = fmt.Errorf("it is %g", v)
			}

			return err
		}
	}

	f.Eventually(t, "nobody waits", value(func(v float64) bool { return v < 0.5 }))
	f.turn(t, hog, true)
	f.Eventually(t, "threads wait for each other", value(func(v float64) bool { return v > 0.5 && v <= float64(threads) }))
	f.awaitThrottled(t, hog)
}

// component applies a component of config/ to a DaemonSet.
func (f fixture) component(t testing.TB, name string, set *appsv1.DaemonSet) *appsv1.DaemonSet {
	t.Helper()

	content, err := config.Components.ReadFile("components/" + name + "/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var k struct{ Patches []struct{ Patch string } }
	if err := yaml.Unmarshal(content, &k); err != nil || len(k.Patches) != 1 {
		t.Fatalf("parsing the component: %v, want one patch: %s", err, content)
	}

	original, err := yaml.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}

	patched, err := strategicpatch.StrategicMergePatch(asJSON(t, string(original)), asJSON(t, k.Patches[0].Patch), set)
	if err != nil {
		t.Fatal(err)
	}

	out := &appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict(patched, out); err != nil {
		t.Fatal(err)
	}

	return out
}

func asJSON(t testing.TB, text string) []byte {
	t.Helper()

	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}

	return out
}
