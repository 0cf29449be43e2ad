// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/kube/pause"
)

// TestPodChainBeforeFirstState checks that new pods are not changed while it is unknown whether Crane is paused.
func TestPodChainBeforeFirstState(t *testing.T) {
	o := NewOptions()
	chain := newPodChain(&dependencies{Options: o, pause: pause.New(nil, o.Namespace, clocktesting.NewFakeClock(time.Unix(0, 0)))})
	if !chain.Stopped() {
		t.Error("new pods are changed before the first state of the switch, want them unchanged")
	}
}
