// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"crane.io/crane/pkg/rebalance"
)

type answer struct{ err error }

func (a answer) Evict(context.Context, string, string, types.UID) error { return a.err }

// TestAnswers checks the handling of each answer to an eviction. One that may have succeeded counts as a success;
// errors of the API server itself are not attributed to a PodDisruptionBudget.
func TestAnswers(t *testing.T) {
	budget := apierrors.NewTooManyRequests("Cannot evict pod", 10)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "needs 2"}}
	for name, test := range map[string]struct {
		err    error
		result string
		// moved means that the eviction counts for the node and the hour, resting that the workload cools down, told
		// that there is an event.
		moved, resting, told bool
	}{
		"yes":               {nil, "evicted", true, true, true},
		"a budget":          {budget, "budget", false, true, true},
		"two budgets":       {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "This pod has more than one PodDisruptionBudget"}}, "budget", false, true, true},
		"busy":              {apierrors.NewTooManyRequests("busy", 1), "failed", false, true, false},
		"timeout":           {context.DeadlineExceeded, "failed", true, true, false},
		"internal error":    {apierrors.NewInternalError(errors.New("etcd")), "failed", true, true, false},
		"another pod, gone": {apierrors.NewConflict(corev1.Resource("pods"), "web", errors.New("UID")), "gone", false, false, false},
	} {
		recorder := events.NewFakeRecorder(10)
		c := &Controller{
			cfg:     Config{Settings: DefaultSettings(), Evictor: answer{test.err}, Events: recorder, Metrics: NewMetrics()},
			cooling: map[string]time.Time{}, reported: map[string]time.Time{},
		}
		c.cfg.Settings.DryRun = false
		s := &snapshot{nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "hot"}}, {ObjectMeta: metav1.ObjectMeta{Name: "cold"}}}}
		c.move(t.Context(), s, rebalance.Move{Pod: rebalance.Pod{Namespace: "shop", Name: "web-1", Workload: "w"}, To: 1}, time.Unix(0, 0))
		_, node := c.cooling["node/hot"]
		_, workload := c.cooling["workload/w"]
		if c.cfg.Metrics.moves[[2]string{test.result, ""}] != 1 || node != test.moved || (len(c.moves) == 1) != test.moved || workload != test.resting || (len(recorder.Events) == 1) != test.told {
			t.Errorf("%s: %v, node rests %t, workload %t, %d moves, %d events", name, c.cfg.Metrics.moves, node, workload, len(c.moves), len(recorder.Events))
		}
	}
}
