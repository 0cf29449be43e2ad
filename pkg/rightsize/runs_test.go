// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"testing"
	"time"
)

// nightlyJob has one run of twenty minutes each night, one pod a run, with a peak of its own.
func nightlyJob(nights int, peak func(night int) float64) Input {
	in := Input{Container: "job", Profile: NewProfile(), Now: start.Add(time.Duration(nights) * day), RunsToCompletion: true}
	for night := range nights {
		s := minutes(20, func(i int) float64 {
			if i == 10 {
				return peak(night)
			}

			return 0.2
		})

		s.Start = start.Add(time.Duration(night)*day + 2*time.Hour)
		in.Profile.AddCPU(Usage{Pod: fmt.Sprint("job-", night), Started: s.Start, Series: s})
		in.Profile.AddMemory(Usage{Pod: fmt.Sprint("job-", night), Started: s.Start, Series: minutesOf(s, 1e9)})
	}

	return in
}

func TestRunsAreSizedByTheirPeaks(t *testing.T) {
	policy := mustPolicy(t, DefaultPolicy)
	r := Recommend(nightlyJob(12, func(night int) float64 { return 1 + 0.01*float64(night) }), policy)
	checkRecommendation(t, r)

	// The steady use is 0.2 cores; a percentile of all samples would return it and throttle each run at its peak.
	if got := *r.Target.CPURequest; got < 1090 || got > 1400 {
		t.Errorf("CPU request %d, want a little more than the peak of most runs", got)
	}
	if got := float64(*r.Target.MemoryRequest); got < 1.11e9 || got > 1.5e9 {
		t.Errorf("memory request %.3g, want 1.11e9 to 1.5e9, which holds the largest run", got)
	}
	if r.CPU.Confidence != 1 {
		t.Errorf("confidence %v after 12 runs, want 1", r.CPU.Confidence)
	}
}

func TestRunsAreCountedNotDays(t *testing.T) {
	policy := mustPolicy(t, DefaultPolicy)
	r := Recommend(nightlyJob(2, func(int) float64 { return 1 }), policy)
	checkRecommendation(t, r)

	if r.CPU.Status != Learning || r.CPU.Message != "learning, 2 of 3 runs" || r.Memory.Status != Learning {
		t.Errorf("two runs: CPU %+v, memory %+v; want learning, 2 of 3 runs", r.CPU, r.Memory)
	}

	in := nightlyJob(0, nil)
	if r := Recommend(in, policy); r.CPU.Status != NoData {
		t.Errorf("no run: CPU %+v, want no data", r.CPU)
	}
}

func TestFindJVM(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want *JVM
	}{
		"nothing":          {[]string{"/bin/server", "--xms", "-X"}, map[string]string{"PATH": "/bin"}, nil},
		"heap":             {[]string{"java", "-Xmx512m", "-jar", "a.jar"}, nil, &JVM{MaxHeap: 512 << 20}},
		"shell":            {[]string{"sh", "-c", "exec java -Xmx2G -jar a.jar"}, nil, &JVM{MaxHeap: 2 << 30}},
		"plain bytes":      {[]string{"-XX:MaxHeapSize=1048576"}, nil, &JVM{MaxHeap: 1 << 20}},
		"environment":      {nil, map[string]string{"JAVA_TOOL_OPTIONS": "-XX:+UseG1GC -XX:MaxRAMPercentage=75.0"}, &JVM{MaxRAMPercentage: 0.75}},
		"last one wins":    {[]string{"-Xmx1g", "-Xmx2g"}, map[string]string{"JAVA_TOOL_OPTIONS": "-Xmx9g"}, &JVM{MaxHeap: 2 << 30}},
		"_JAVA_OPTIONS":    {[]string{"-Xmx1g"}, map[string]string{"_JAVA_OPTIONS": "-Xmx3g"}, &JVM{MaxHeap: 3 << 30}},
		"refused by a JVM": {[]string{"-Xmx", "-Xmxlots", "-Xmx-1g", "-Xmx99999999999t", "-XX:MaxRAMPercentage=NaN", "-XX:MaxRAMPercentage=150"}, nil, nil},
	} {
		got := FindJVM(c.args, c.env)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestProfile_ShortLives checks that replicas which started within the last days are not taken for runs, and that runs of earlier days are.
func TestProfile_ShortLives(t *testing.T) {
	replicas := NewProfile()
	runs := NewProfile()
	for i := range 4 {
		from := start.Add(20 * time.Hour)
		replicas.AddMemory(Usage{Pod: fmt.Sprintf("replica-%d", i), Series: at(from, 600, same(1e8))})

		from = start.Add(time.Duration(i) * day)
		runs.AddMemory(Usage{Pod: fmt.Sprintf("run-%d", i), Series: at(from, 60, same(1e8))})
	}

	if n := replicas.ShortLives(); n != 0 {
		t.Errorf("ShortLives of four replicas that run for ten hours = %d, want none", n)
	}
	if n := runs.ShortLives(); n != 3 {
		t.Errorf("ShortLives of four daily runs = %d, want the 3 before the last day", n)
	}
}
