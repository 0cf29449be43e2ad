// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"bytes"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// randomInput draws a container with holes, odd values, kills and settings.
func randomInput(rng *rand.Rand) Input {
	in := Input{Container: "app", Profile: NewProfile(), Now: start.Add(time.Duration(rng.IntN(16*1440)) * time.Minute)}
	scale := math.Exp(8 * (rng.Float64() - 0.5))
	for pod := range 1 + rng.IntN(6) {
		s := minutes(rng.IntN(16*1440), func(i int) float64 {
			switch x := rng.Float64(); {
			case x < 0.02:
				return []float64{math.NaN(), math.Inf(1), -1, 0, 1e300}[rng.IntN(5)]
			default:
				return scale * x * float64(1+i/5000)
			}
		})

		u := Usage{Pod: string(rune('a' + pod)), Series: s}
		if rng.Float64() < 0.5 {
			u.Started = start.Add(time.Duration(rng.IntN(1440)) * time.Minute)
		}

		in.Profile.AddCPU(u)
		u.Series.Values = slices.Clone(s.Values)
		for i := range u.Series.Values {
			u.Series.Values[i] *= 1e9
		}

		in.Profile.AddMemory(u)
	}

	maybe := func(limit int64) int64 { return rng.Int64N(limit) - limit/8 }
	if rng.Float64() < 0.7 {
		in.Current = Resources{
			CPURequest: new(units.MilliCPU(maybe(4000))), CPULimit: new(units.MilliCPU(maybe(8000))),
			MemoryRequest: new(units.Bytes(maybe(1 << 33))), MemoryLimit: new(units.Bytes(maybe(1 << 34))),
		}
	}

	for range rng.IntN(3) {
		in.OOMs = append(in.OOMs, OOM{At: in.Now.Add(-time.Duration(maybe(int64(20 * day)))), Memory: units.Bytes(maybe(1 << 34))})
	}

	if rng.Float64() < 0.3 {
		in.HPA = &HPA{CPUUtilization: units.Ratio(rng.Float64()), MemoryUtilization: units.Ratio(rng.Float64())}
		in.JVM = &JVM{MaxHeap: units.Bytes(maybe(1 << 32)), PeakHeap: units.Bytes(maybe(1 << 32)), MaxRAMPercentage: units.Ratio(rng.Float64())}
	}

	if rng.Float64() < 0.3 {
		in.MaxCPU = 4000
		in.MaxMemory = 1 << 33
	}

	return in
}

func TestRecommend_RandomProfiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	policies := []Policy{mustPolicy(t, DefaultPolicy), mustPolicy(t, LatencySensitivePolicy), mustPolicy(t, BatchPolicy)}

	gocrane, err := GocranePolicy(map[string]string{"specification": "true", "cpu-target-utilization": "0.8"})
	if err != nil {
		t.Fatal(err)
	}

	for i := range 150 {
		in := randomInput(rng)
		checkRecommendation(t, Recommend(in, append(policies, gocrane)[i%4]))

		if i%10 == 0 {
			checkEvidence(t, CollectEvidence(in, policies[i%3]))
		}
	}
}

func checkEvidence(t *testing.T, e Evidence) {
	t.Helper()

	for _, r := range []Replay{e.CPU, e.Memory} {
		if (r.Days == 0) != (len(r.Outcomes) == 0) {
			t.Fatalf("Replay has %d days and %d outcomes, want both or none", r.Days, len(r.Outcomes))
		}

		for _, o := range r.Outcomes {
			for _, v := range []units.Ratio{o.Violation, o.Overrun} {
				if !(v >= 0 && v <= 1.0000001) {
					t.Fatalf("outcome %+v, want a violation and an overrun of 0 to 1", o)
				}
			}

			if math.IsNaN(float64(o.Slack)) || o.Slack > 1 || math.IsNaN(o.Request) {
				t.Fatalf("outcome %+v, want a slack of at most 1 and a request", o)
			}
		}

		for i := 1; i < len(r.Curve); i++ {
			if r.Curve[i].Violation > r.Curve[i-1].Violation+1e-9 || r.Curve[i].Slack < r.Curve[i-1].Slack-1e-9 {
				t.Fatalf("curve %+v, want less violation and more slack from %v on", r.Curve, r.Curve[i].Quantile)
			}
		}
	}
}

func TestNeedIsMonotone(t *testing.T) {
	in := steadyInput(14, 1)
	days := in.Profile.Days()
	cpu := mustPolicy(t, DefaultPolicy).CPU
	last := 0.0

	rise := func(what string, need float64) {
		t.Helper()

		// The content of a bucket is spread evenly, so a bound that moves within a bucket may change the result by a
		// thousandth.
		if need < last*0.999 || math.IsNaN(need) {
			t.Errorf("%s: Need falls from %v to %v, want it not to fall", what, last, need)
		}

		last = need
	}

	for _, q := range []units.Ratio{0.5, 0.9, 0.95, 0.98, 0.99, 1} {
		cpu.Method = Percentile
		cpu.Percentile = q
		rise("percentile", cpu.Need(days, in.Now))
	}

	last = 0
	for _, m := range []units.Ratio{0, 0.1, 0.2, 1} {
		cpu.Margin = m
		rise("margin", cpu.Need(days, in.Now))
	}

	for _, set := range []func(*CPUPolicy, float64){
		func(p *CPUPolicy, v float64) { p.Envelope.ViolationPrice = 20 * v },
		func(p *CPUPolicy, v float64) { p.Envelope.Cover = units.Ratio(v) },
		func(p *CPUPolicy, v float64) { p.Percentile = units.Ratio(v) },
		func(p *CPUPolicy, v float64) { p.Envelope.SpreadMargin = units.Ratio(v) },
	} {
		last = 0
		for _, v := range []float64{0.3, 0.6, 0.9, 0.99, 1} {
			cpu := mustPolicy(t, DefaultPolicy).CPU
			set(&cpu, v)
			rise("envelope", cpu.Need(days, in.Now))
		}
	}

	memory := mustPolicy(t, DefaultPolicy).Memory
	last = 0

	for _, q := range []units.Ratio{0.3, 0.6, 0.9, 1} {
		memory.Percentile = q
		rise("memory percentile", memory.Need(days, in.Now))
	}
}

func TestNeedScalesWithUse(t *testing.T) {
	for _, name := range PolicyNames() {
		p := mustPolicy(t, name)
		single := steadyInput(14, 1)
		want := p.CPU.Need(single.Profile.Days(), single.Now)
		for _, scale := range []float64{1e-4, 0.5, 8, 1e3} {
			in := steadyInput(14, scale)
			if got := p.CPU.Need(in.Profile.Days(), in.Now) / scale; math.Abs(got/want-1) > 0.02 {
				t.Errorf("%s: use times %v gives %v times the need", name, scale, got/want)
			}
			if got, want := p.Memory.Need(in.Profile.Days(), in.Now)/scale, p.Memory.Need(single.Profile.Days(), single.Now); math.Abs(got/want-1) > 0.02 {
				t.Errorf("%s: memory times %v gives %v times the need", name, scale, got/want)
			}
		}
	}
}

// TestNoiseDoesNotDecide: two readings of the same use, a hundredth apart at each sample, lead to nearly the same need,
// also where the tail of a day has two ends that cost the same.
func TestNeed_IgnoresSmallNoise(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(61, seed))
		load := daily(rng)
		a := NewProfile()
		b := NewProfile()

		use := minutes(14*1440, func(int) float64 { return 0 })
		again := minutes(14*1440, func(int) float64 { return 0 })
		burst := 1 + 2*rng.Float64()
		for i := range use.Values {
			v := load(i) * math.Exp(0.1*rng.NormFloat64())
			if i%1440 < 12 {
				v *= burst
			}

			use.Values[i] = v
			again.Values[i] = v * (1 + 0.01*rng.NormFloat64())
		}

		a.AddCPU(Usage{Series: use})
		b.AddCPU(Usage{Series: again})
		policy := mustPolicy(t, DefaultPolicy).CPU

		x := policy.Need(a.Days(), use.End())
		y := policy.Need(b.Days(), use.End())
		if math.Abs(y/x-1) > 0.02 {
			t.Errorf("seed %d: Need = %v, want about %v, as of the same usage without the noise", seed, y, x)
		}
	}
}

// TestDecisionLooksOnlyBack checks that extreme samples after the decision have no effect.
func TestDecisionLooksOnlyBack(t *testing.T) {
	in := steadyInput(14, 1)
	in.Now = start.Add(10 * day)
	policy := mustPolicy(t, DefaultPolicy)
	before := Recommend(in, policy)
	future := minutes(1440, func(int) float64 { return 1e6 })
	future.Start = in.Now
	in.Profile.AddCPU(Usage{Pod: "b", Series: future})
	in.Profile.AddMemory(Usage{Pod: "b", Series: future})

	after := Recommend(in, policy)
	if *before.Target.CPURequest != *after.Target.CPURequest || *before.Target.MemoryRequest != *after.Target.MemoryRequest {
		t.Errorf("Recommend after later samples = %s, want %s as before", jsonText(after.Target), jsonText(before.Target))
	}
}

func TestProfileMergeAndCheckpoint(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	whole := randomInput(rng)
	whole.Profile.Merge(steadyInput(5, 1).Profile)
	parts := NewProfile()
	again := NewProfile()

	for _, d := range whole.Profile.Days() {
		oneDay := NewProfile()
		oneDay.Merge(whole.Profile.between(d.Day, d.Day+1))

		stored, err := oneDay.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}

		var part Profile
		if err := part.UnmarshalBinary(stored); err != nil {
			t.Fatal(err)
		}

		parts.Merge(&part)
	}

	all, _ := whole.Profile.MarshalBinary()
	if err := again.UnmarshalBinary(all); err != nil {
		t.Fatal(err)
	}

	for _, p := range []*Profile{parts, again} {
		got, _ := p.MarshalBinary()
		if !bytes.Equal(got, all) {
			t.Error("MarshalBinary of a profile from parts differs, want that of the whole")
		}
	}

	for _, i := range []int{0, 1, 2, 10, len(all) / 2, len(all) - 1} {
		broken := bytes.Clone(all)
		broken[i] ^= 0x55
		if err := new(Profile).UnmarshalBinary(broken); err == nil {
			t.Errorf("UnmarshalBinary with byte %d altered succeeded, want an error", i)
		}
		if err := new(Profile).UnmarshalBinary(all[:i]); err == nil {
			t.Errorf("UnmarshalBinary of %d bytes succeeded, want an error", i)
		}
	}
}

func FuzzProfileUnmarshal(f *testing.F) {
	data, _ := steadyInput(2, 1).Profile.MarshalBinary()
	f.Add(data[:len(data)-4])
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := crc32.ChecksumIEEE(body)
		data := append(bytes.Clone(body), byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))

		var p Profile
		if p.UnmarshalBinary(data) != nil {
			return
		}

		if _, err := p.MarshalBinary(); err != nil {
			t.Fatal(err)
		}

		in := Input{Profile: &p, Now: start.Add(3 * day)}
		if days := p.Days(); len(days) > 0 {
			in.Now = days[len(days)-1].Day.End()
		}

		policy, err := GocranePolicy(nil)
		if err != nil {
			t.Fatal(err)
		}

		checkRecommendation(t, Recommend(in, policy))
		checkRecommendation(t, Recommend(in, mustPolicy(t, DefaultPolicy)))
	})
}

// TestEvidenceAgreesWithPlainCounting compares with a replay of a percentile policy on the samples.
func TestEvidenceAgreesWithPlainCounting(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 52))
	load := daily(rng)
	s := minutes(12*1440, func(i int) float64 { return load(i) * math.Exp(0.2*rng.NormFloat64()) })
	in := Input{Container: "app", Profile: NewProfile(), Now: start.Add(12 * day)}
	in.Profile.AddCPU(Usage{Series: s})

	in.Current.CPURequest = ptr(units.MilliCPU(1300))
	e := CollectEvidence(in, mustPolicy(t, DefaultPolicy))
	if e.CPU.Days != 5 || e.CPU.From != "2026-03-09" || len(e.CPU.Outcomes) != 6 || e.Memory.Days != 0 {
		t.Fatalf("CollectEvidence = %+v, want 5 days of CPU from 2026-03-09 with 6 outcomes, and none of memory", e)
	}

	over, use := 0, 0.0
	tested := s.Values[7*1440:]
	for _, v := range tested {
		use += v
		if v > 1.3 {
			over++
		}
	}

	today := e.CPU.Outcomes[1]
	n := float64(len(tested))
	if today.Policy != CurrentSetting || math.Abs(float64(today.Violation)-float64(over)/n) > 0.003 || math.Abs(float64(today.Slack)-(1-use/(1.3*n))) > 1e-9 {
		t.Errorf("%+v, want violation %v and slack %v", today, float64(over)/n, 1-use/(1.3*n))
	}

	for _, o := range e.CPU.Outcomes[2:] {
		if o.Policy == "krr-p95" && math.Abs(float64(o.Violation)-0.05) > 0.01 {
			t.Errorf("krr-p95 on steady load: violation %v, want about 0.05", o.Violation)
		}
	}
}
