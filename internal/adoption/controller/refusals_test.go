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

// TestRefusals: only refusals because of the node's capacity are recorded, for a limited time and number.
func TestRefusals(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	pods := schema.GroupResource{Resource: "pods"}
	cause := apierrors.NewForbidden(pods, "web-1", errors.New("no"))

	cause.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NodeCapacity"}}
	for name, c := range map[string]struct {
		err     error
		after   time.Duration
		refused bool
	}{
		"by its cause": {fmt.Errorf("resizing: %w", cause), time.Minute, true},
		"by its text":  {apierrors.NewForbidden(pods, "web-1", errors.New("node didn't have enough allocatable resources: cpu")), time.Minute, true},
		"a quota":      {apierrors.NewForbidden(pods, "web-1", errors.New("exceeded quota")), time.Minute, false},
		"long ago":     {cause, time.Hour, false},
	} {
		var r refusals
		r.record(adoption.PodResize{UID: "uid-1"}, c.err, now)

		all := r.mark([]adoption.Pod{{UID: "uid-0"}, {UID: "uid-1"}}, now.Add(c.after))
		if all[0].Refused != "" || (all[1].Refused != "") != c.refused {
			t.Errorf("%s: mark = %+v, want uid-1 refused: %t", name, all, c.refused)
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
