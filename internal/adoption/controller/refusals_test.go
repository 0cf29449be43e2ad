// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"crane.io/crane/pkg/adoption"
)

// TestRefusals: refusals are recorded for a limited time and number, those because of the node's capacity as such.
func TestRefusals(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	pods := schema.GroupResource{Resource: "pods"}
	cause := apierrors.NewForbidden(pods, "web-1", errors.New("no"))

	cause.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NodeCapacity"}}
	for name, c := range map[string]struct {
		err     error
		after   time.Duration
		refused bool
		anyNode bool
	}{
		"by its cause": {fmt.Errorf("resizing: %w", cause), time.Minute, true, false},
		"by its text":  {apierrors.NewForbidden(pods, "web-1", errors.New("node didn't have enough allocatable resources: cpu")), time.Minute, true, false},
		"a quota":      {apierrors.NewForbidden(pods, "web-1", errors.New("exceeded quota")), time.Minute, true, true},
		"long ago":     {cause, time.Hour, false, false},
	} {
		var r refusals
		r.record(adoption.PodResize{UID: "uid-1"}, c.err, now)

		all := r.mark([]adoption.Pod{{UID: "uid-0"}, {UID: "uid-1"}}, now.Add(c.after))
		if all[0].Refused != "" || (all[1].Refused != "") != c.refused || all[1].RefusedOnAnyNode != c.anyNode {
			t.Errorf("%s: mark = %+v, want uid-1 refused: %t, on any node: %t", name, all, c.refused, c.anyNode)
		}
	}

	var r refusals
	for i := range 2*maxRefusals + 1 {
		r.record(adoption.PodResize{UID: fmt.Sprint(i)}, cause, now)
	}

	if len(r.byPod) > maxRefusals {
		t.Errorf("%d refusals are recorded, want at most %d", len(r.byPod), maxRefusals)
	}
}
