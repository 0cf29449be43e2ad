// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/pkg/qos"
)

func taintedNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: ensurancev1alpha1.TaintKey, Effect: corev1.TaintEffectPreferNoSchedule}}},
	}
}

// TestIncompleteRules checks that a plan from incomplete rules or an unknown node removes no taint.
func TestIncompleteRules(t *testing.T) {
	for name, test := range map[string]struct {
		state cluster.State
		kept  bool
	}{
		"nothing":        {cluster.State{}, true},
		"the node alone": {cluster.State{Node: taintedNode()}, true},
		"rules alone":    {cluster.State{KnowsRules: true}, true},
		"both":           {cluster.State{Node: taintedNode(), KnowsRules: true}, false},
		"rules of files": {cluster.State{KnowsRules: true, IgnoreNodeLabels: true}, false},
	} {
		client := fake.NewClientset(taintedNode())
		clk := clocktesting.NewFakeClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC))
		a := executors{
			reporter: report.New(report.Config{Node: "n", Enforced: func(report.Kind) bool { return true }, Log: logr.Discard(), Clock: clk}),
			tainter: act.NewTainter(act.TainterConfig{
				Name: "n", Nodes: client.CoreV1().Nodes(), Node: taintedNode, Clock: clk, Log: logr.Discard(), Beat: func(string) {},
			}),
		}

		a.execute(&qos.Plan{Avoid: qos.Avoidance{Reason: "no rule has fired"}}, &qos.State{}, nil, rulesComplete(&test.state))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.tainter.Run(ctx) }()
		isGone := func(context.Context) (bool, error) {
			n, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
			return err == nil && !act.IsTainted(n), err
		}

		if !test.kept {
			if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, isGone); err != nil {
				t.Errorf("%s: the taint stays, want it removed: %v", name, err)
			}
		}

		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if gone, err := isGone(t.Context()); err != nil || gone == test.kept {
			t.Errorf("%s: the taint is gone: %t, %v; want it kept: %t", name, gone, err, test.kept)
		}
	}
}
