// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/units"
)

// fleet returns profiles like those of a cluster: a daily cycle with the noise of a container, and bursts; and the effect of a reaction,
// which may be nil.
func fleet(containers, days int, by *calibrate.Reaction) []*Profile {
	out := make([]*Profile, containers)
	for i := range out {
		rng := rand.New(rand.NewPCG(21, uint64(i)))
		size := math.Exp(2*rng.NormFloat64() - 2)
		load := daily(rng)
		out[i] = NewProfile()

		out[i].AddCPU(Usage{Pod: "a", Reaction: by, Series: minutes(days*1440, func(m int) float64 {
			v := size * load(m) * math.Exp(0.3*rng.NormFloat64())
			if rng.Float64() < 0.01 {
				v *= 1 + 4*rng.Float64()
			}

			return v
		})})

		out[i].AddMemory(Usage{Pod: "a", Series: minutes(days*1440, func(m int) float64 { return 1e8 * size * (1 + 0.1*load(m)) * (1 + 0.01*rng.NormFloat64()) })})
		out[i].Compact()
	}

	return out
}

// BenchmarkRecommend10000 is one pass over ten thousand containers with 14 days of sketches each; 500 profiles take
// turns, which is more than the caches hold.
func BenchmarkRecommend10000(b *testing.B) {
	profiles := fleet(500, 14, nil)
	policy := mustPolicy(b, DefaultPolicy)
	now := start.Add(14 * day)
	request := units.MilliCPU(500)
	limit := units.MilliCPU(1000)
	current := Resources{CPURequest: &request, CPULimit: &limit}
	b.ReportAllocs()

	for b.Loop() {
		for i := range 10_000 {
			r := Recommend(Input{Container: "app", Profile: profiles[i%len(profiles)], Current: current, Now: now}, policy)
			if !r.Ready() {
				b.Fatalf("Recommend = %+v, want numbers for both resources", r)
			}
		}
	}
}

// BenchmarkProve is the evidence for one container and 14 days.
func BenchmarkProve(b *testing.B) {
	profile := fleet(1, 14, nil)[0]
	policy := mustPolicy(b, DefaultPolicy)
	in := Input{Container: "app", Profile: profile, Now: start.Add(14 * day)}
	b.ReportAllocs()

	for b.Loop() {
		if e := CollectEvidence(in, policy); e.CPU.Days != 7 {
			b.Fatalf("CollectEvidence compares %d days, want 7", e.CPU.Days)
		}
	}
}

// BenchmarkAddCPU adds one day of one pod at a step of a minute; it also reports the size of the sketch.
func BenchmarkAddCPU(b *testing.B) {
	load := daily(rand.New(rand.NewPCG(1, 1)))
	s := minutes(1440, load)
	for name, reaction := range map[string]*calibrate.Reaction{"plain": nil, "reaction": calibrate.DefaultSettings().Reaction} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p := NewProfile()
				p.AddCPU(Usage{Series: s, Reaction: reaction})
			}

			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1440, "ns/sample")
		})
	}
}

// TestMemoryOfTenThousandContainers measures 200 containers with 14 days and scales up, without and with the effect of the reaction.
func TestMemoryOfTenThousandContainers(t *testing.T) {
	for _, test := range []struct {
		by   *calibrate.Reaction
		most float64
	}{{nil, 150}, {calibrate.DefaultSettings().Reaction, 200}} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		profiles := fleet(200, 14, test.by)
		runtime.GC()
		runtime.ReadMemStats(&after)
		mib := float64(after.HeapAlloc-before.HeapAlloc) / (1 << 20) * 10_000 / 200
		t.Logf("10,000 containers of 14 days, reaction %v: %.0f MiB", test.by != nil, mib)

		if mib > test.most {
			t.Errorf("10,000 containers of 14 days, reaction %v, take %.0f MiB, want at most %v", test.by != nil, mib, test.most)
		}
		runtime.KeepAlive(profiles)
	}
}
