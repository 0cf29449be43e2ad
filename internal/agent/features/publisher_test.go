// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

const key = "ensurance.crane.io/agent-features"

// TestPublish checks that the annotation is written on change, at most once a minute, and retried after an error.
func TestPublish(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: map[string]string{"other": "stays"}}})
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	var list []Feature

	read := func() *corev1.Node {
		n, err := client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		return n
	}

	patches := func() (n int) {
		for _, a := range client.Actions() {
			if a.GetVerb() == "patch" {
				n++
			}
		}

		return n
	}

	a := NewPublisher(PublisherConfig{List: func() []Feature { return list }, Node: read, Client: client, Clock: clk, Log: logr.Discard(), Beat: func(string) {}})
	a.publish(t.Context())

	if patches() != 0 || testutil.CollectAndCount(a) != 0 {
		t.Errorf("%d patches and %d series before detection, want none", patches(), testutil.CollectAndCount(a))
	}

	list = []Feature{on("cgroups", "cgroup v2"), unsupported("cpi", "no counters")}
	a.publish(t.Context())

	if got, want := read().Annotations[key], `{"cgroups":"on: cgroup v2","cpi":"unsupported: no counters"}`; got != want || read().Annotations["other"] != "stays" {
		t.Errorf("%s, want %s", got, want)
	}

	a.publish(t.Context())
	if patches() != 1 {
		t.Errorf("%d more patches while nothing changes, want none", patches()-1)
	}

	// Flapping does not write each time.
	list = []Feature{on("cgroups", "cgroup v2"), on("cpi", "")}
	clk.Step(minWriteInterval / 2)
	a.publish(t.Context())

	if patches() != 1 {
		t.Errorf("%d patches within a minute, want 1", patches())
	}

	clk.Step(minWriteInterval)
	a.publish(t.Context())

	if got := read().Annotations[key]; !strings.Contains(got, `"cpi":"on"`) {
		t.Errorf("the annotation is %s, want cpi on", got)
	}

	// The annotation is removed while the API server fails.
	fails := true
	client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return fails, nil, errors.New("refused") })

	if _, err := client.CoreV1().Nodes().Update(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	clk.Step(minWriteInterval)
	a.publish(t.Context())
	fails = false
	a.publish(t.Context())

	if got := read().Annotations[key]; !strings.Contains(got, `"cpi":"on"`) {
		t.Errorf("the annotation after an error is %q, want cpi on", got)
	}

	want := "# HELP crane_agent_feature 1 for each feature in the state that it is in: on, off or unsupported.\n# TYPE crane_agent_feature gauge\n" +
		"crane_agent_feature{feature=\"cgroups\",state=\"on\"} 1\ncrane_agent_feature{feature=\"cpi\",state=\"on\"} 1\n"

	if err := testutil.CollectAndCompare(a, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestPublishMetricOnly checks that without an API server or a known Node only the metric is published.
func TestPublishMetricOnly(t *testing.T) {
	a := NewPublisher(PublisherConfig{
		List: func() []Feature { return []Feature{on("cgroups", "")} }, Node: func() *corev1.Node { return nil },
		Clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), Log: logr.Discard(), Beat: func(string) {},
	})
	a.publish(t.Context())

	if testutil.CollectAndCount(a) != 1 {
		t.Errorf("the metric has %d series, want 1", testutil.CollectAndCount(a))
	}
}
