// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
)

// conflictingLock is a lock whose first updates conflict.
type conflictingLock struct {
	resourcelock.Interface
	holder             string
	conflicts, updates int
}

func (*conflictingLock) Identity() string { return "me" }

func (c *conflictingLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: c.holder}, nil, nil
}

func (c *conflictingLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	c.updates++

	if c.updates <= c.conflicts {
		return apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "craned", nil)
	}

	return nil
}

// TestLease_ReleaseAfterRenewal checks that a release that conflicts with a renewal of this replica is sent again, and that nothing else is.
func TestLease_ReleaseAfterRenewal(t *testing.T) {
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
		l := &lease{Interface: &test.lock, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), lost: make(chan error, 1)}
		err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: test.record})
		if test.lock.updates != test.updates || (err == nil) != test.ok {
			t.Errorf("%s: %d updates, %v; want %d", name, test.lock.updates, err, test.updates)
		}
	}
}

// TestLease_Expires checks that a leader that could not renew is reported before a standby may lead, and that one that renewed or released is not.
func TestLease_Expires(t *testing.T) {
	for settings, want := range map[LeaderElection]time.Duration{
		{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}: 12 * time.Second,
		{LeaseDuration: 12 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 8 * time.Second}: 11 * time.Second,
	} {
		if got := settings.limit(); got != want {
			t.Errorf("%+v: limit %s, want %s", settings, got, want)
		}
	}

	const limit = 12 * time.Second
	for name, test := range map[string]struct {
		holders []string // of the writes, of which each but the first is sent half of the limit after the one before
		slow    time.Duration
		after   time.Duration // the last write
		want    string
	}{
		"renewed in time":    {[]string{"me", "me", "me"}, 0, limit - time.Second, ""},
		"not renewed":        {[]string{"me", "me"}, 0, limit, "the lease craned was not renewed for 12s"},
		"after slow answers": {[]string{"me"}, 4 * time.Second, limit - 4*time.Second, "the lease craned was not renewed for 12s"},
		"released":           {[]string{"me", ""}, 0, 9 * limit, ""},
	} {
		clk := clocktesting.NewFakeClock(time.Unix(0, 0))
		l := &lease{Interface: &slowLock{clock: clk, slow: test.slow}, clock: clk, limit: limit, lost: make(chan error, 1)}
		for i, holder := range test.holders {
			if i > 0 {
				clk.Step(limit / 2)
			}

			if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: holder}); err != nil {
				t.Fatal(err)
			}
		}

		clk.Step(test.after)
		got := ""
		select {
		case err := <-l.lost:
			got = err.Error()
		default:
		}

		if got != test.want {
			t.Errorf("%s: reported %q, want %q", name, got, test.want)
		}
	}
}

// slowLock is a lock whose updates take some time.
type slowLock struct {
	resourcelock.Interface
	clock *clocktesting.FakeClock
	slow  time.Duration
}

func (*slowLock) Identity() string { return "me" }

func (s *slowLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	s.clock.Step(s.slow)
	return nil
}
