// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"path/filepath"
	"testing"

	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/pkg/qos"
)

const memoryVictimRules = `
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: memory}
spec:
  rules:
  - {name: memory, avoidanceThreshold: 1, restoreThreshold: 1, actionName: go, metricRule: {name: memory_total_usage, value: 56Gi}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: go}
spec: {eviction: {}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: PodQOS
metadata: {name: batch}
spec: {allowedActions: [go], labelSelector: {matchExpressions: [{key: app, operator: In, values: [cache, leak]}]}}
`

// setMemory sets the memory of a pod of one container: anonymous memory, shared memory and page cache in use.
func (m *hostFixture) setMemory(t *testing.T, group, container string, anon, shared, hot int64) {
	t.Helper()

	stat := fmt.Sprintf("anon %d\nfile %d\nshmem %d\ninactive_file 0\nactive_file %d\n", anon, shared+hot, shared, hot)
	for _, dir := range []string{group, filepath.Join(group, container)} {
		m.write(t, filepath.Join("sys/fs/cgroup", dir, "memory.stat"), stat)
		m.write(t, filepath.Join("sys/fs/cgroup", dir, "memory.current"), fmt.Sprintln(anon+shared+hot))
	}
}

// TestMemoryVictims checks that pods are ordered and credited by the memory that their eviction makes available: a pod with a large page
// cache stays, since the node's use excludes page cache, and the pod that leaks goes.
func TestMemoryVictims(t *testing.T) {
	const gi = 1 << 30
	m := newHostFixture(t)
	m.write(t, "proc/meminfo", fmt.Sprintf("MemTotal: %d kB\nMemAvailable: %d kB\n", 64*gi>>10, 2*gi>>10)) // 6 GiB above the threshold
	cache := podOn("11111111-1111-1111-1111-111111111111", "cache", containerID("1"))
	leak := podOn("22222222-2222-2222-2222-222222222222", "leak", containerID("2"))

	_, l, _ := fixture{m.dir, t.TempDir(), clocktesting.NewFakeClock(m.now), nil, known(t, memoryVictimRules, cache, leak)}.agent(t)
	var plan qos.Plan
	for range 2 {
		now := m.run(t) // rewrites the files of memory
		m.setMemory(t, webGroup, containerID("1"), 100<<20, 0, 10*gi)
		m.setMemory(t, hogGroup, containerID("2"), 6*gi, 2*gi, 0)
		plan = l.tick(now)
	}

	if len(plan.Evictions) != 1 || plan.Evictions[0].Pod.Name != "leak" || plan.Evictions[0].Freed != 8*gi {
		t.Errorf("evictions are %+v, findings %+v; want pod leak with 8 GiB", plan.Evictions, plan.Rules)
	}
}
