// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/test/hostrecording"
)

// threadFiles writes the thread files of a container in a recorded tree.
type threadFiles struct {
	dir, group string
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// setWaited sets the threads and their wait times in milliseconds.
func (h threadFiles) setWaited(t *testing.T, waited map[int]int) {
	t.Helper()

	var list strings.Builder
	for id := range 1000 {
		if ms, ok := waited[id]; ok {
			fmt.Fprintln(&list, id)
			writeFile(t, filepath.Join(h.dir, "proc", strconv.Itoa(id), "schedstat"), fmt.Sprintf("1000 %d 5\n", ms*int(time.Millisecond)))
		}
	}

	writeFile(t, filepath.Join(h.dir, "sys/fs/cgroup", h.group, "cgroup.threads"), list.String())
}

// newRunQueueFixture returns a tree with a sampled container.
func newRunQueueFixture(t *testing.T) (*Observer, threadFiles, func(time.Duration) Known[RunQueue]) {
	t.Helper()

	dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
	o := newObserver(t, dir)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := threadFiles{dir: dir, group: findPod(o.Collect(now), burstable).Containers[0].Path}
	o.SetRunQueueSampling(Always)

	return o, h, func(d time.Duration) Known[RunQueue] {
		now = now.Add(d)
		return findPod(o.Collect(now), burstable).Containers[0].RunQueue
	}
}

// TestRunQueue checks the wait time per second of threads that are in both samples.
func TestRunQueue(t *testing.T) {
	_, h, look := newRunQueueFixture(t)
	h.setWaited(t, map[int]int{11: 100, 12: 5000})

	if q := look(time.Second); q.OK {
		t.Errorf("after one sample RunQueue is %+v, want unknown", q.Value)
	}

	h.setWaited(t, map[int]int{11: 2100, 12: 10000, 13: 99999})
	if q := look(5 * time.Second); q.OK {
		t.Errorf("after five seconds RunQueue is %+v, want no second sample yet", q.Value)
	}
	// Two and five seconds in ten; the third thread is new.
	if q := look(5 * time.Second); !q.OK || math.Abs(q.Value.Waiting-0.7) > 1e-9 || q.Value.Sampled != 2 || q.Value.Threads != 3 {
		t.Errorf("RunQueue is %+v, want 0.7 by 2 of 3 threads", q)
	}

	// One thread has ended, its ID was reused with a lower counter, and one continues.
	h.setWaited(t, map[int]int{11: 5, 13: 99999 + 1000})

	if q := look(10 * time.Second); !q.OK || math.Abs(q.Value.Waiting-0.1) > 1e-9 || q.Value.Sampled != 1 || q.Value.Threads != 2 {
		t.Errorf("RunQueue is %+v, want 0.1 by 1 of 2 threads", q)
	}
	// A sample is reported until the next, for at most a minute.
	if q := look(time.Second); !q.OK {
		t.Error("RunQueue is unknown, want the last sample")
	}

	h.setWaited(t, map[int]int{})
	if q := look(10 * time.Second); q.OK {
		t.Errorf("without threads RunQueue is %+v, want unknown", q.Value)
	}

	// A clock set back yields no sample, and sampling continues.
	h.setWaited(t, map[int]int{11: 10})
	look(10 * time.Second)
	h.setWaited(t, map[int]int{11: 20})

	if q := look(-time.Hour); q.OK {
		t.Errorf("after the clock was set back RunQueue is %+v, want unknown", q.Value)
	}

	h.setWaited(t, map[int]int{11: 1020})
	if q := look(10 * time.Second); !q.OK || math.Abs(q.Value.Waiting-0.1) > 1e-9 {
		t.Errorf("one sample after the clock was set back RunQueue is %+v, want 0.1", q)
	}
}

// TestRunQueueLacks checks that unreadable values are unknown and reported as problems.
func TestRunQueueLacks(t *testing.T) {
	for name, test := range map[string]struct {
		list, stat, want string
	}{
		"hidden":       {"0\n0\n", "", "hostPID"},
		"half a line":  {"11", "1 2 3\n", host.ErrTruncated.Error()},
		"no number":    {"x\n", "1 2 3\n", "not a number"},
		"not counted":  {"11\n", "0 0 0\n", "keeps no statistics"},
		"half a stat":  {"11\n", "1 2", host.ErrTruncated.Error()},
		"too few":      {"11\n", "1 2\n", "three numbers"},
		"ended thread": {"11\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, h, look := newRunQueueFixture(t)
			writeFile(t, filepath.Join(h.dir, "sys/fs/cgroup", h.group, "cgroup.threads"), test.list)

			if test.stat != "" {
				writeFile(t, filepath.Join(h.dir, "proc/11/schedstat"), test.stat)
			}
			if q := look(time.Second); q.OK {
				t.Errorf("RunQueue is %+v, want unknown", q.Value)
			}
			if got := o.snapshot.Problems["run queue"]; !strings.Contains(got, test.want) || test.want == "" && got != "" {
				t.Errorf("the problem is %q, want %q", got, test.want)
			}
		})
	}

	// A missing file, or disabled sampling, is no problem.
	o, h, look := newRunQueueFixture(t)
	if q := look(time.Second); q.OK || o.snapshot.Problems["run queue"] != "" {
		t.Errorf("without a file RunQueue is %+v, problems %v; want neither", q, o.snapshot.Problems)
	}

	h.setWaited(t, map[int]int{11: 10})
	look(10 * time.Second)
	o.SetRunQueueSampling(WithoutPressure)

	if q := look(10 * time.Second); q.OK {
		t.Errorf("a pod with pressure has RunQueue %+v, want unknown", q)
	}

	o.SetRunQueueSampling(Never)
	look(10 * time.Second)

	if len(o.runQueues.groups) > 0 {
		t.Error("groups are kept while disabled, want none")
	}
}

// TestRunQueueIsBounded checks the limit of reads per measurement and that every container is sampled.
func TestRunQueueIsBounded(t *testing.T) {
	dir := recordManyPods(t, 30)
	o := newObserver(t, dir)
	now := time.Now()
	s := o.Collect(now)
	o.SetRunQueueSampling(Always)

	var list strings.Builder
	for id := range 200 {
		fmt.Fprintln(&list, 1000+id)
		writeFile(t, filepath.Join(dir, "proc", strconv.Itoa(1000+id), "schedstat"), "1000 1000 5\n")
	}

	for i := range s.Pods {
		for _, c := range s.Pods[i].Containers {
			writeFile(t, filepath.Join(dir, "sys/fs/cgroup", c.Path, "cgroup.threads"), list.String())
		}
	}

	for range 60 {
		now = now.Add(time.Second)
		o.Collect(now)

		if read := maxReadsPerMeasurement - o.runQueues.readsLeft; read > maxReadsPerMeasurement {
			t.Fatalf("%d files are read in a look, want %d at most", read, maxReadsPerMeasurement)
		}
	}

	sampled := 0
	for i := range s.Pods {
		for _, c := range s.Pods[i].Containers {
			if c.RunQueue.OK {
				sampled++
				if q := c.RunQueue.Value; q.Sampled > maxSampledThreads || q.Threads != 200 {
					t.Errorf("the sample is %+v, want at most %d of 200 threads", q, maxSampledThreads)
				}
			}
		}
	}

	if sampled != 65 {
		t.Errorf("%d containers were sampled within a minute, want 65", sampled)
	}
}

// TestOwnThreads reads the statistics of this process.
func TestOwnThreads(t *testing.T) {
	var r host.Reader
	f := host.NewSchedStatFile("/", uint64(os.Getpid()))
	defer f.Close()

	content, err := r.Read(&f)
	if err != nil {
		t.Skip("no schedstat: ", err)
	}

	if strings.HasPrefix(string(content), "0 0 0") {
		t.Skip("the kernel does not count")
	}

	if s, err := host.ParseSchedStat(content); err != nil || s.WaitTime < 0 {
		t.Errorf("ParseSchedStat of this host = %+v, %v, want a wait time", s, err)
	}
}
