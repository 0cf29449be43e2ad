// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// hours returns a series of n hours from start.
func hours(n int, f func(i int) float64) series.Series {
	s := series.Series{Start: start, Step: time.Hour, Values: make([]float64, n)}
	for i := range s.Values {
		s.Values[i] = f(i)
	}

	return s
}

func same(v float64) func(int) float64 { return func(int) float64 { return v } }

// caching is a container of some days that uses 1 GiB, of which it holds a part.
func caching(days int, held float64, basis ReclaimBasis) Input {
	in := constant(days, 0.1, 1<<30)
	in.Profile.AddUnreclaimable(Usage{Pod: "a", Series: hours(24*days, same(held))}, basis)
	return in
}

func TestPageCache(t *testing.T) {
	const mb, gib = 1 << 20, 1 << 30
	whole := *Recommend(constant(10, 0.1, gib), mustPolicy(t, DefaultPolicy)).Target.MemoryRequest

	for _, c := range []struct {
		policy string
		basis  ReclaimBasis
		// at is the estimate, in MiB.
		at float64
	}{
		{LatencySensitivePolicy, WithoutActiveFile, 100 + 0.75*924},
		{DefaultPolicy, WithoutActiveFile, 100 + 0.5*924},
		{BatchPolicy, WithoutActiveFile, 100 + 0.25*924},
		{DefaultPolicy, AnonymousOnly, 1024},
	} {
		r := Recommend(caching(10, 100*mb, c.basis), mustPolicy(t, c.policy))
		checkRecommendation(t, r)

		if got := r.Memory.Estimate / mb; got < c.at-0.01 || got > c.at+0.01 {
			t.Errorf("%s, basis %d: estimate %v MiB, want %v", c.policy, c.basis, got, c.at)
		}

		// Both numbers are reported, whether the cache is left out or not.
		finding := detail(r.Memory, string(FlagPageCache))
		if !strings.Contains(finding, "1.00Gi") || !strings.Contains(finding, "100.0Mi") {
			t.Errorf("%s, basis %d: finding %q, want 1.00Gi and 100.0Mi in it", c.policy, c.basis, finding)
		}
		if hasStep(r.Memory, StepPageCache) != (c.basis == WithoutActiveFile) {
			t.Errorf("%s, basis %d: steps %v, want a page cache step: %t", c.policy, c.basis, r.Memory.Steps, c.basis == WithoutActiveFile)
		}
	}

	trusting := mustPolicy(t, DefaultPolicy)
	trusting.Memory.PageCache.TrustRSS = true
	if got := Recommend(caching(10, 100*mb, AnonymousOnly), trusting); *got.Target.MemoryRequest >= whole || !strings.Contains(got.Memory.Message, "taken from rss") {
		t.Errorf("a policy that trusts rss: memory %+v, want less than %d and the reason", got.Memory, whole)
	}

	steady := Recommend(caching(10, 1020*mb, WithoutActiveFile), mustPolicy(t, DefaultPolicy))
	if hasFlag(steady.Memory, FlagPageCache) || *steady.Target.MemoryRequest > whole {
		t.Errorf("hardly any cache: memory %+v, want at most %d without a finding", steady.Memory, whole)
	}
}

// TestPageCacheIsNeverGuessed checks that memory with unknown page cache for an hour with samples counts completely.
func TestPageCacheIsNeverGuessed(t *testing.T) {
	const gib = 1 << 30
	policy := mustPolicy(t, DefaultPolicy)
	whole := *Recommend(constant(10, 0.1, gib), policy).Target.MemoryRequest

	request := func(add func(p *Profile)) units.Bytes {
		in := constant(10, 0.1, gib)
		add(in.Profile)
		r := Recommend(in, policy)
		checkRecommendation(t, r)

		return *r.Target.MemoryRequest
	}

	usage := func(pod string, n int, f func(int) float64) Usage { return Usage{Pod: pod, Series: hours(n, f)} }
	if got := request(func(p *Profile) { p.AddUnreclaimable(usage("a", 239, same(1e8)), WithoutActiveFile) }); got >= whole {
		t.Errorf("only the newest hour is missing: request %d, want less than %d", got, whole)
	}

	for name, add := range map[string]func(p *Profile){
		"the last day":   func(p *Profile) { p.AddUnreclaimable(usage("a", 216, same(1e8)), WithoutActiveFile) },
		"two hours":      func(p *Profile) { p.AddUnreclaimable(usage("a", 238, same(1e8)), WithoutActiveFile) },
		"another pod":    func(p *Profile) { p.AddUnreclaimable(usage("b", 240, same(1e8)), WithoutActiveFile) },
		"hours of a day": func(p *Profile) { p.AddUnreclaimable(usage("a", 240, gapsAt(30, 40)), WithoutActiveFile) },
		"hostile": func(p *Profile) {
			p.AddUnreclaimable(usage("a", 240, func(i int) float64 { return -float64(i) - 1 }), WithoutActiveFile)
		},
		"more than all": func(p *Profile) { p.AddUnreclaimable(usage("a", 240, same(5e12)), WithoutActiveFile) },
	} {
		if got := request(add); got != whole {
			t.Errorf("%s: request %d, want %d as without it", name, got, whole)
		}
	}

	// The request is never below the unreclaimable memory.
	for i := range 20 {
		low := float64(i) * 5e7
		if got := request(func(p *Profile) { p.AddUnreclaimable(usage("a", 240, same(low)), WithoutActiveFile) }); float64(got) < low {
			t.Errorf("unreclaimable memory %v: request %d, want at least that", low, got)
		}
	}
}

func gapsAt(from, to int) func(int) float64 {
	return func(i int) float64 {
		if i >= from && i < to {
			return series.Gap()
		}

		return 1e8
	}
}

// TestPageCacheOfManyPods checks that pods beyond those that a day keeps count as a whole.
func TestPageCacheOfManyPods(t *testing.T) {
	d := &Day{Day: series.DayOf(start)}
	p := &Profile{days: []*Day{d}}
	for i := range maxPodsPerDay + 100 {
		pod := fmt.Sprint("p", i)
		p.AddMemory(Usage{Pod: pod, Series: minutes(60, same(float64(1000+i)))})
		p.AddUnreclaimable(Usage{Pod: pod, Series: hours(1, same(10))}, WithoutActiveFile)
	}

	if got := d.requiredPeak(1, nil); got != maxPodsPerDay+1099 {
		t.Errorf("requiredPeak = %v, want %v, the largest of all pods", got, maxPodsPerDay+1099)
	}
}

// TestReplayKnowsPageCache checks that the replay counts no OOM kill for reclaimable cache.
func TestReplayKnowsPageCache(t *testing.T) {
	in := caching(12, 1e8, WithoutActiveFile)
	in.Current = Resources{MemoryRequest: ptr(units.Bytes(5e8)), MemoryLimit: ptr(units.Bytes(5e8))}
	for _, o := range CollectEvidence(in, mustPolicy(t, DefaultPolicy)).Memory.Outcomes {
		if *o.OOMDays != 0 {
			t.Errorf("%s: OOMDays %d, want 0: 100 MB never passed a limit", o.Policy, *o.OOMDays)
		}
	}
}

// TestJobsWithPageCache: a run is sized without its cache as well.
func TestJobsWithPageCache(t *testing.T) {
	in := constant(10, 0.1, 1e9)
	in.Profile = NewProfile()
	in.RunsToCompletion = true
	for i := range 6 {
		s := minutes(60, same(1e9))
		h := hours(1, same(1e8))
		s.Start = start.Add(time.Duration(i) * day)
		h.Start = s.Start
		in.Profile.AddMemory(Usage{Pod: fmt.Sprint(i), Series: s})
		in.Profile.AddUnreclaimable(Usage{Pod: fmt.Sprint(i), Series: h}, WithoutActiveFile)
	}

	r := Recommend(in, mustPolicy(t, DefaultPolicy))
	if r.Memory.Status != Ready || r.Memory.Estimate > 5.6e8 || !hasStep(r.Memory, StepPageCache) {
		t.Errorf("runs with cache: memory %+v, want at most 5.6e8 with a page cache step", r.Memory)
	}
}

// TestFirstProfileVersion checks that a checkpoint of the previous version is read without the new fields.
func TestFirstProfileVersion(t *testing.T) {
	out := []byte{profileKind, firstProfileVersion}
	out = binary.AppendUvarint(out, 1)
	out = binary.AppendVarint(out, 20000)
	out = binary.LittleEndian.AppendUint32(out, 3)
	out = binary.LittleEndian.AppendUint32(out, 7)
	out = appendFloat32(appendFloat32(out, 1), 2)
	out = binary.AppendUvarint(out, 1)
	out = binary.LittleEndian.AppendUint32(out, 99)
	out = appendFloat32(appendFloat32(appendFloat32(out, 10), 20), 0.5)

	empty, err := new(Day).CPU.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		out = append(binary.AppendUvarint(out, uint64(len(empty))), empty...)
	}

	out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
	var p Profile
	if err := p.UnmarshalBinary(out); err != nil {
		t.Fatal(err)
	}

	d := p.Days()[0]
	if d.Day != 20000 || d.CPUHours != 3 || d.MemoryHours != 7 || d.StartMemory != 2 || d.ReclaimBasis != BasisUnknown || d.MemoryTime != 0 {
		t.Errorf("day of version 1 = %+v, want its fields, and zero for those of later versions", d)
	}
	if want := (PodPeak{Pod: 99, First: 10, Peak: 20, CPU: 0.5}); d.Peaks[0] != want {
		t.Errorf("%+v, want %+v", d.Peaks[0], want)
	}
}

// TestHeldSurvivesTheCache: days that are stored apart and merged lead to the same sketch, in any order.
func TestProfile_MergesStoredDays(t *testing.T) {
	whole := caching(3, 1e8, WithoutActiveFile).Profile
	memory := NewProfile()
	held := NewProfile()
	memory.Merge(constant(3, 0.1, 1<<30).Profile)
	held.AddUnreclaimable(Usage{Pod: "a", Series: hours(72, same(1e8))}, WithoutActiveFile)

	want, _ := whole.MarshalBinary()
	for _, order := range [][2]*Profile{{memory, held}, {held, memory}} {
		merged := NewProfile()
		for _, part := range order {
			stored, err := part.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}

			again := NewProfile()
			if err := again.UnmarshalBinary(stored); err != nil {
				t.Fatal(err)
			}

			merged.Merge(again)
		}

		if got, _ := merged.MarshalBinary(); string(got) != string(want) {
			t.Errorf("merged days differ: %+v, want %+v", merged.Days()[0], whole.Days()[0])
		}
	}
}
