// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	clocktesting "k8s.io/utils/clock/testing"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/ruleset"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

const heldRules = `
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: elastic}
spec:
  rules:
  - {name: held, avoidanceThreshold: 2, restoreThreshold: 2, actionName: go, metricRule: {name: ext_cpu_total_distribute, value: 100}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: go}
spec: {coolDownSeconds: 60, eviction: {}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: PodQOS
metadata: {name: batch}
spec: {allowedActions: [go], labelSelector: {matchLabels: {app: hog}}}
`

// TestHeldAboveTheOffer checks that a rule on the requests of elastic pods fires if the reclaimable capacity is lower than the advertised
// one, and not while it is unknown.
func TestHeldAboveTheOffer(t *testing.T) {
	m := newHostFixture(t)
	l := m.loop(t, t.TempDir())

	set, err := ruleset.Parse([]byte(heldRules))
	if err != nil {
		t.Fatal(err)
	}

	hog := podOn("22222222-2222-2222-2222-222222222222", "hog", containerID("2"))
	three := corev1.ResourceList{ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse("3")}
	hog.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: three, Requests: three}
	node := &corev1.Node{Status: corev1.NodeStatus{Capacity: three, Allocatable: three}}
	l.view = cluster.NewStatic(cluster.State{IgnoreNodeLabels: true, KnowsPods: true, KnowsRules: true, Rules: set, Node: node, Pods: []*corev1.Pod{hog}})
	m.hog = 1
	finding := func() (qos.Finding, int) {
		plan := l.tick(m.run(t))
		return plan.Rules[0], len(plan.Evictions)
	}

	// All advertised capacity is requested.
	for range 3 {
		if f, evictions := finding(); f.Value != 100 || evictions > 0 {
			t.Fatalf("the finding is %+v with %d evictions, want 100 and none", f, evictions)
		}
	}

	offer := units.MilliCPU(2000)
	known := false
	l.reclaimable = func() (capacity elasticrequest.ReclaimableCapacity) {
		if known {
			capacity.CPU = &offer
		}

		return capacity
	}

	for range 3 {
		if f, evictions := finding(); f.Phase != qos.Unknown && f.Phase != qos.Held || evictions > 0 {
			t.Fatalf("with unknown capacity the finding is %+v with %d evictions, want unknown or held and none", f, evictions)
		}
	}

	known = true
	finding()

	if f, evictions := finding(); f.Phase != qos.Firing || f.Value != 150 || evictions != 1 {
		t.Fatalf("with 2 cores the finding is %+v with %d evictions, want it firing at 150 and one", f, evictions)
	}

	offer = 0
	if f, _ := finding(); f.Value != 400 {
		t.Errorf("without capacity the finding is %+v, want 400", f)
	}

	offer = 5000
	finding()

	if f, evictions := finding(); f.Phase == qos.Firing || f.Value != 60 || evictions > 0 {
		t.Errorf("with 5 cores the finding is %+v with %d evictions, want 60 and none", f, evictions)
	}
}

// TestElasticPodsAreLimited checks that the wired agent limits an elastic pod and undoes everything at the end.
func TestElasticPodsAreLimited(t *testing.T) {
	m := newHostFixture(t)
	m.web, m.hog = 1, 1
	pods := filepath.Join(t.TempDir(), "pods.yaml")
	const list = `{kind: List, items: [{kind: Pod, metadata: {namespace: "n", name: hog, uid: 22222222-2222-2222-2222-222222222222},
  spec: {containers: [{name: main, resources: {requests: {gocrane.io/cpu: "2", gocrane.io/memory: 1Gi}, limits: {gocrane.io/cpu: "2", gocrane.io/memory: 1Gi}}}]},
  status: {phase: Running, containerStatuses: [{name: main, containerID: "containerd://%s"}]}}]}`

	if err := os.WriteFile(pods, fmt.Appendf(nil, list, containerID("2")), 0o600); err != nil {
		t.Fatal(err)
	}

	m.run(t)
	p, all, err := newParts(t, m, "--enforce=pod-resource", "--bind-address=0", "--pods="+pods, "--node-labels=a=b")
	if err != nil {
		t.Fatal(err)
	}

	clk, ok := p.clock.(*clocktesting.FakeClock)
	if !ok {
		t.Fatalf("the clock is a %T, want a fake one", p.clock)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- managerGroup{log: p.log, clock: clk, heartbeats: p.heartbeats, stopTimeout: time.Minute}.run(ctx, all)
	}()

	memory := func() string {
		content, err := os.ReadFile(filepath.Join(m.tree.Dir, hogGroup, containerID("2"), "memory.max"))
		if err != nil {
			t.Fatal(err)
		}

		return strings.TrimSpace(string(content))
	}

	until(t, "the pod is limited", func() bool {
		clk.Step(time.Second)
		return m.hogsLimit(t) == "200000 100000" && memory() == "1073741824"
	})
	cancel()

	if err := <-done; err != nil {
		t.Fatal(err)
	}

	if m.hogsLimit(t) != "max 100000" || memory() != "max" {
		t.Errorf("at the end the limits are %s and %s, want max", m.hogsLimit(t), memory())
	}
}
