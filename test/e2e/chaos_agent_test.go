// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// chaosRequest is the request of the pods that are throttled, in cores.
const chaosRequest = 0.5

// chaosPressure is appended to the objects of the scenario: rules of the agent, a pod that it throttles, and the Deployment rush, which fills
// the node while it has a replica.
const chaosPressure = `    ---
    apiVersion: ensurance.crane.io/v1alpha1
    kind: NodeQOS
    metadata: {name: mixed}
    spec:
      selector: {matchLabels: {crane.io/nodepool: agent}}
      rules:
      - {name: cpu-high, metricRule: {name: cpu_total_utilization, value: 80}, avoidanceThreshold: 2, restoreThreshold: 5, actionName: throttle-batch}
    ---
    apiVersion: ensurance.crane.io/v1alpha1
    kind: AvoidanceAction
    metadata: {name: throttle-batch}
    spec:
      coolDownSeconds: 10
      throttle: {cpuThrottle: {minCPURatio: 10, stepCPURatio: 25}}
    ---
    apiVersion: ensurance.crane.io/v1alpha1
    kind: PodQOS
    metadata: {name: batch}
    spec:
      allowedActions: [throttle-batch]
      labelSelector: {matchLabels: {workload: batch}}
      resourceQOS: {cpuQOS: {cpuPriority: 7}}
    ---
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: cruncher, namespace: shop}
    spec:
      replicas: 1
      selector: {matchLabels: {app: cruncher}}
      template:
        metadata: {labels: {app: cruncher, workload: batch}, annotations: {sim.crane.io/cpu: "8"}}
        spec:
          nodeSelector: {crane.io/nodepool: agent}
          tolerations: [{key: crane.io/nodepool, value: agent, effect: NoSchedule}]
          containers: [{name: app, image: "pause:3.10", resources: {requests: {cpu: 500m, memory: 64Mi}}}]
    ---
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: rush, namespace: shop}
    spec:
      replicas: 0
      selector: {matchLabels: {app: rush}}
      template:
        metadata: {labels: {app: rush}, annotations: {sim.crane.io/cpu: "12"}}
        spec:
          nodeSelector: {crane.io/nodepool: agent}
          tolerations: [{operator: Exists}]
          containers: [{name: app, image: "pause:3.10", resources: {requests: {cpu: "12", memory: 64Mi}}}]
`

// quota returns the limit of the throttled pod in cores; 0 without one.
func (c *chaos) quota(t *testing.T) float64 {
	t.Helper()

	found, err := filepath.Glob(filepath.Join(c.state, "hosts/agent-01/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/*/*.scope/cpu.max"))
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range found {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // The container has ended.
		}

		var quota, period float64
		// No other pod there has a limit.
		if n, _ := fmt.Sscanf(string(content), "%g %g", &quota, &period); n == 2 && period > 0 {
			return quota / period
		}
	}

	return 0
}

// checkThrottled fails the test if a pod is throttled below its request, or further while Crane is paused.
func (c *chaos) checkThrottled(t *testing.T) {
	t.Helper()

	last := c.limit
	read := c.limitRead
	now := time.Now()
	quota := c.quota(t)
	c.limit = quota
	c.limitRead = now

	if quota == 0 {
		return
	}

	if lower := last == 0 || quota < last; lower && c.stopped(read) {
		t.Errorf("cruncher is throttled to %g cores from %g while Crane is paused, want no new limit", quota, last)
	}

	c.throttled = true
	if quota < chaosRequest-0.001 {
		t.Errorf("cruncher is throttled to %g cores, want at least its request of %g", quota, chaosRequest)
	}
}

// servingCertificate returns an error if the certificate of a Secret is not valid.
func (c *chaos) servingCertificate(t *testing.T, name string) error {
	t.Helper()

	data := c.certificates(t, name).Data
	pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", name, err)
	}

	if end := pair.Leaf.NotAfter; time.Now().After(end) {
		return fmt.Errorf("the certificate of %s ended on %s and was not replaced", name, end)
	}

	return nil
}
