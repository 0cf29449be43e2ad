// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// conflictingLock is a lock whose first updates conflict.
type conflictingLock struct {
	resourcelock.Interface
	holder             string
	conflicts, updates int
}

func (*conflictingLock) Identity() string { return "me" }

func (l *conflictingLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, nil, nil
}

func (l *conflictingLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	if l.updates++; l.updates <= l.conflicts {
		return apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "craned", nil)
	}
	return nil
}

// TestReleaseAfterRenewal checks that a release that conflicts with a renewal of this replica is sent again, and that nothing else is.
func TestReleaseAfterRenewal(t *testing.T) {
	for name, test := range map[string]struct {
		lock    conflictingLock
		record  string
		updates int
		ok      bool
	}{
		"release":                  {conflictingLock{holder: "me"}, "", 1, true},
		"release after a renewal":  {conflictingLock{holder: "me", conflicts: 1}, "", 2, true},
		"always a conflict":        {conflictingLock{holder: "me", conflicts: 9}, "", releaseTries, false},
		"another replica holds it": {conflictingLock{holder: "other", conflicts: 1}, "", 1, false},
		"renewal":                  {conflictingLock{holder: "me", conflicts: 1}, "me", 1, false},
	} {
		l := &lease{Interface: &test.lock, lost: make(chan string, 1)}
		err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: test.record})
		if test.lock.updates != test.updates || (err == nil) != test.ok {
			t.Errorf("%s: %d updates, %v; want %d", name, test.lock.updates, err, test.updates)
		}
	}
}
