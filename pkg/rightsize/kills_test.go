// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// TestRecommend_NotBelowTheLimitThatKilled checks each policy and age: samples are far below the limit at which the kernel killed the
// container, so they are no measure of the need.
func TestRecommend_NotBelowTheLimitThatKilled(t *testing.T) {
	const gib = units.Bytes(1 << 30)
	for _, name := range PolicyNames() {
		policy := mustPolicy(t, name)
		for _, age := range []time.Duration{time.Hour, 4 * time.Hour, 3 * day, 7 * day, 14 * day} {
			in := constant(14, 0.1, 700*(1<<20))
			in.Current = Resources{MemoryRequest: ptr(gib), MemoryLimit: ptr(gib)}
			in.OOMs = []OOM{{At: in.Now.Add(-age), Memory: gib}}
			r := Recommend(in, policy)
			checkRecommendation(t, r)

			if got := *r.Target.MemoryRequest; got < gib || *r.Target.MemoryLimit < gib {
				t.Errorf("%s, %v after a kill at 1Gi: Target %s, want 1Gi or more", name, age, jsonText(r.Target))
			}
		}
	}
}

// TestRecommend_NotBelowAKillAboveTheCap checks kills at limits that were raised between them by more than the cap.
func TestRecommend_NotBelowAKillAboveTheCap(t *testing.T) {
	in := constant(14, 0.1, 300*(1<<20))
	for i, limit := range []units.Bytes{512 << 20, 1 << 30, 3 << 30} {
		in.OOMs = append(in.OOMs, OOM{At: in.Now.Add(-time.Duration(72-24*i) * time.Hour), Memory: limit})
	}

	r := Recommend(in, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	if got := *r.Target.MemoryRequest; got != 3<<30 || !strings.Contains(detail(r.Memory, string(FlagOOM)), "look for a leak") {
		t.Errorf("kills at 512Mi, 1Gi and 3Gi: request %s with the finding %q, want 3Gi and a leak to look for",
			units.FormatMemory(got), detail(r.Memory, string(FlagOOM)))
	}
}

// TestRecommend_KillWithoutALimit checks that a kill of a container without a limit is named but bounds nothing.
func TestRecommend_KillWithoutALimit(t *testing.T) {
	in := constant(14, 0.1, 300*(1<<20))
	quiet := *Recommend(in, mustPolicy(t, DefaultPolicy)).Target.MemoryRequest

	in.OOMs = []OOM{{At: in.Now.Add(-time.Hour), Memory: 4 << 30, NoLimit: true}}
	r := Recommend(in, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	text := detail(r.Memory, string(FlagOOM))
	if got := *r.Target.MemoryRequest; got != quiet || !strings.Contains(text, "1 times without a limit of its own") {
		t.Errorf("a kill without a limit: request %d with the finding %q, want %d and a finding that it bounds nothing", got, text, quiet)
	}
}

// TestRecommend_KillAtAnUnknownLimit checks that the request is not lowered, and that repeated adoption does not raise it for ever.
func TestRecommend_KillAtAnUnknownLimit(t *testing.T) {
	request, limit := units.Bytes(1<<30), units.Bytes(4<<30)
	for i := range 20 {
		in := constant(14, 0.1, 300*(1<<20))
		in.Current = Resources{MemoryRequest: ptr(request), MemoryLimit: ptr(limit)}
		in.OOMs = []OOM{{At: in.Now.Add(-time.Hour), Memory: 300 << 20, LimitUnknown: true}}
		r := Recommend(in, mustPolicy(t, DefaultPolicy))
		checkRecommendation(t, r)
		request, limit = *r.Target.MemoryRequest, *r.Target.MemoryLimit

		if request != 1<<30 || limit != 4<<30 {
			t.Fatalf("adoption %d after a kill at an unknown limit: %s, want 1Gi and 4Gi as before", i, fmt.Sprint(units.FormatMemory(request), " ", units.FormatMemory(limit)))
		}
	}
}

// TestRecommend_UnknownKills checks that a request is not lowered while it is unknown whether the container was killed, and that the reason is
// given.
func TestRecommend_UnknownKills(t *testing.T) {
	for _, name := range PolicyNames() {
		in := constant(14, 0.1, 300*(1<<20))
		in.Current = guaranteed(200, 1<<30)
		in.UnknownKills = "too many samples"
		r := Recommend(in, mustPolicy(t, name))
		checkRecommendation(t, r)

		text := detail(r.Memory, string(FlagOOM))
		if got := *r.Target.MemoryRequest; got != 1<<30 || !strings.Contains(text, "too many samples") {
			t.Errorf("%s, unknown kills: request %d with the finding %q, want 1Gi and the reason", name, got, text)
		}
	}
}
