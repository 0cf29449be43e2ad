// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/pkg/qos"
)

// TestThrottleAfterReload checks a systemd daemon-reload, which rewrites the original limits: the next throttle sets the limit again and
// restores the same original, and without one nothing is left to undo.
func TestThrottleAfterReload(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for _, limited := range []bool{false, true} {
			n := newFixture(t, v1)
			quota := "cpu.max"

			weight := "cpu.weight"
			period := " 100000"
			none := "max"
			if v1 {
				quota = "cpu.cfs_quota_us"
				weight = "cpu.shares"
				period = ""
				none = "-1"
			}

			pod := filepath.Dir(n.group)
			original := qos.Unlimited
			whole := none
			if limited {
				original = qos.Quota(600)
				whole = "60000"
			}

			reload := func() {
				n.put(t, pod, quota, whole)
				n.put(t, pod, weight, "80")
				n.put(t, n.group, quota, whole)
			}

			holds := func(when, want string) {
				t.Helper()

				fields := []string{strings.TrimSuffix(n.get(t, n.group, quota), period), n.get(t, pod, weight)}
				if got := strings.Join(fields, " "); got != want {
					t.Errorf("v1 %t, %s: %s, want %s", v1, when, got, want)
				}
			}

			throttle := func(th *Throttler, from, to qos.Quota) {
				t.Helper()

				p := plan(from, to, original)
				p.Weight = 0.5
				if err := th.Throttle(p, n.group); err != nil {
					t.Fatal(err)
				}
			}

			reload()
			th := n.throttler(t, n.tree)
			throttle(th, original, 300)
			throttle(th, 300, 100)
			holds("throttled", "10000 40")
			reload()

			// Measured without the limit, the rule still fires.
			throttle(th, original, 200)
			holds("throttled again", "20000 40")
			reload()

			if err := undoThrottles(th); err != nil || len(th.journal.Entries()) > 0 {
				t.Errorf("v1 %t: undoThrottles = %v with entries %+v, want nil and none", v1, err, th.journal.Entries())
			}

			holds("undone after a reload", whole+" 80")
			throttle(th, original, 200)

			if err := undoThrottles(th); err != nil {
				t.Error(err)
			}
			holds("undone", whole+" 80")
		}
	}
}
