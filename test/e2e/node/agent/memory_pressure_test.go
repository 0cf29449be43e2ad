// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/test/e2e/node"
)

// tightRules reclaim page cache of batch pods and then evict while the node uses more than THRESHOLD bytes of memory.
//
//go:embed testdata/tight-rules.yaml
var tightRules string

const (
	mebi = 1 << 20
	// cached is the reader's page cache in MiB, growth the demand of the growing pod, and room the part of it below the threshold. A third
	// of it covers changes of kubelet and containerd.
	cached, growth, room = 160, 480, 200
)

// pressureFixture is a node with a server and batch pods: a reader of files, a growing pod and a steady one.
type pressureFixture struct {
	fixture
	t                            *testing.T
	cgroups                      *node.Cgroups
	server, reader, grows, keeps *corev1.Pod
	// log reads the agent's audit file.
	log *corev1.Pod
	// highs are the final memory limits by pod name.
	highs map[string]string
}

func newPressureFixture(t *testing.T) *pressureFixture {
	t.Helper()

	base := newFixture(t, node.Options{Machine: true, Cgroup: 2})
	// The reader has a limit as set by a kubelet with MemoryQoS.
	f := &pressureFixture{fixture: base, t: t, server: base.bystander(t), highs: map[string]string{"bystander": "max", "reader": strconv.Itoa(400 * mebi), "keeps": "max"}}
	run := func(name string, args ...string) *corev1.Pod {
		pod := f.Pod(name, "memory-hog", args, nil, nil)
		pod.Labels = batch()
		return f.Run(t, pod)
	}

	f.reader = run("reader", "-mib", strconv.Itoa(cached), "-file", "/tmp/cache")
	f.keeps = run("keeps", "-mib", "48")
	f.grows = run("grows", "-mib", strconv.Itoa(growth), "-pause", "500ms", "-after", signal)
	log := f.Pod("log", "cgroups", []string{"stay"}, nil, nil)
	log.Spec.Volumes = []corev1.Volume{{Name: "state", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/crane-agent", Type: new(corev1.HostPathDirectoryOrCreate)},
	}}}
	log.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "state", MountPath: "/state", ReadOnly: true}}

	f.log = f.Run(t, log)
	f.cgroups = f.Cgroups(t)
	if err := f.cgroups.Write(t, containerDir(f.cgroups, f.reader)+"/memory.high", f.highs["reader"]); err != nil {
		t.Fatal(err)
	}

	f.Eventually(t, "the files are in memory", func() error {
		return compare(f.file(f.reader), "memory.current", func(v int64) bool { return v > cached*mebi })
	})

	return f
}

// file returns a reader of files of a pod's container.
func (f *pressureFixture) file(pod *corev1.Pod) func(string) (string, error) {
	return func(name string) (string, error) { return f.cgroups.Read(f.t, containerDir(f.cgroups, pod)+"/"+name) }
}

// used returns the memory in use as measured by the agent.
func (f *pressureFixture) used() (int64, error) {
	text, err := f.cgroups.Read(f.t, "/proc/meminfo")
	if err != nil {
		return 0, err
	}

	kib := map[string]int64{}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 {
			if kib[strings.TrimSuffix(fields[0], ":")], err = strconv.ParseInt(fields[1], 10, 64); err != nil {
				return 0, err
			}
		}
	}

	if kib["MemTotal"] == 0 || kib["MemAvailable"] == 0 {
		return 0, fmt.Errorf("meminfo is %q", text)
	}

	return (kib["MemTotal"] - kib["MemAvailable"]) << 10, nil
}

// audit reads the agent's audit file.
func (f *pressureFixture) audit() (out []report.Record, err error) {
	text, err := f.Exec(f.t, f.log, "/nodekit", "cgroups", "read", "/state/audit.log")
	if err != nil {
		return nil, err
	}

	for line := range strings.Lines(text) {
		var r report.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return out, err // A line being written.
		}

		out = append(out, r)
	}

	return out, nil
}

// TestMemoryPressure checks on cgroup v2 that under pressure by a growing pod page cache of another pod is reclaimed, and then only the
// growing pod is evicted with the action's grace period. Afterward all is restored, and audit records and events are in this order.
func TestMemoryPressure(t *testing.T) {
	if testing.Short() {
		t.Skip("an emulated machine takes minutes")
	}

	f := newPressureFixture(t)
	f.deploy(t, "--enforce=memory-throttle,evict,taint", "--evict-also=bare-pods", "--collect-interval=2s")
	var used int64
	f.Eventually(t, "use of memory", func() (err error) {
		used, err = f.used()
		return err
	})
	f.apply(t, strings.ReplaceAll(tightRules, "THRESHOLD", fmt.Sprint(used+room*mebi))+batchMakesRoom)

	before, err := f.file(f.reader)("memory.current")
	if err != nil {
		t.Fatal(err)
	}

	if actions, err := f.audit(); err == nil && len(actions) > 0 {
		t.Fatalf("a calm node has the actions %+v, want none", actions)
	}

	graces := f.graces(t, f.grows)
	begun := time.Now()
	f.turn(t, f.grows, true)
	seen := f.watch(graces)
	t.Logf("evicted %s after it began to grow, with %d s of grace; %d MiB of the node in use, then %s; the reader held %s, then %s; what grew held %s",
		time.Since(begun).Round(time.Second), seen.grace, used/mebi, seen.node, before, seen.reader, seen.grows)

	if seen.grace != 7 {
		t.Errorf("evicted with %d s of grace, want 7, those of the action", seen.grace)
	}

	f.Eventually(t, "the files are dropped", func() error {
		return compare(f.file(f.reader), "memory.current", func(v int64) bool { return v < cached*mebi/2 })
	})
	f.calmAgain()
	f.tellsInOrder(f.records())

	for _, reason := range []string{"AvoidanceTriggered", "NewPodsKeptAway", "RestoreTriggered", "NewPodsWelcome"} {
		f.awaitEvent(t, reason)
	}
}

// observedPressure is what was observed until the eviction.
type observedPressure struct {
	grace               int64
	node, reader, grows string
}

// watch observes the node until the growing pod is evicted.
func (f *pressureFixture) watch(graces <-chan int64) (s observedPressure) {
	f.t.Helper()

	f.Eventually(f.t, "an eviction", func() error {
		select {
		case s.grace = <-graces:
			return nil
		default:
		}

		// The files of a terminating pod disappear, and an emulated machine may not answer in time.
		if used, err := f.used(); err == nil {
			s.node = fmt.Sprintf("%d MiB", used/mebi)
		}

		for pod, into := range map[*corev1.Pod]*string{f.reader: &s.reader, f.grows: &s.grows} {
			if text, err := f.file(pod)("memory.current"); err == nil {
				*into = text
			}
		}

		if high, err := f.file(f.server)("memory.high"); err == nil && high != "max" {
			f.t.Errorf("the server has a limit of %s, want none", high)
		}

		return fmt.Errorf("the node uses %s, the reader %s, what grows %s", s.node, s.reader, s.grows)
	})

	return s
}

// calmAgain waits until everything is restored and checks the other pods.
func (f *pressureFixture) calmAgain() {
	f.t.Helper()

	others := []*corev1.Pod{f.server, f.reader, f.keeps}
	f.Eventually(f.t, "the node is calm", func() error {
		for _, pod := range others {
			high, err := f.file(pod)("memory.high")
			if err != nil {
				return err
			}

			if high != f.highs[pod.Name] {
				return fmt.Errorf("memory.high of %s is %s, want %s", pod.Name, high, f.highs[pod.Name])
			}
		}

		is, err := f.Client.CoreV1().Nodes().Get(f.t.Context(), f.Name(), metav1.GetOptions{})
		if err != nil {
			return err
		}

		if isTainted(is) {
			return errors.New("the node has the taint")
		}

		for _, c := range is.Status.Conditions {
			if c.Type == ensurancev1alpha1.ConditionInterferenceIdentified && c.Status != corev1.ConditionFalse {
				return fmt.Errorf("the node has the condition %+v", c)
			}
		}

		return nil
	})

	for _, p := range others {
		now := f.Await(f.t, p, "is there", func(*corev1.Pod) bool { return true })
		if now.UID != p.UID || now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].RestartCount != 0 {
			f.t.Errorf("%s has the status %+v, want it running without a restart", p.Name, now)
		}
	}
}

// records waits until the audit file contains the end.
func (f *pressureFixture) records() (out []report.Record) {
	f.t.Helper()

	f.Eventually(f.t, "the audit file tells of the end", func() (err error) {
		if out, err = f.audit(); err == nil && !slices.ContainsFunc(out, func(r report.Record) bool { return r.Action == report.Untaint }) {
			err = fmt.Errorf("its last line is %+v", out[max(len(out)-1, 0):])
		}

		return err
	})

	return out
}

// tellsInOrder checks the order of rule, reclaim, eviction, end and restore in the audit file, for the expected pods only.
func (f *pressureFixture) tellsInOrder(records []report.Record) {
	f.t.Helper()

	first := func(what string, match func(*report.Record) bool) time.Time {
		i := slices.IndexFunc(records, func(r report.Record) bool { return match(&r) })
		if i < 0 {
			f.t.Errorf("the audit file has no record of %s, want one", what)
			return time.Time{}
		}

		return records[i].Time
	}

	done := func(kind report.Kind, pod string) func(*report.Record) bool {
		return func(r *report.Record) bool { return r.Action == kind && r.Outcome == report.Done && r.Pod == pod }
	}
	fires := first("the rule", func(r *report.Record) bool { return r.Action == report.RuleFires })
	dropped := first("files that are dropped", func(r *report.Record) bool {
		return done(report.MemoryThrottle, "reader")(r) && r.FreesBytes != nil && *r.FreesBytes > mebi
	})
	kept := first("growth that is held", done(report.MemoryThrottle, "grows"))

	evicted := first("the eviction", done(report.Evict, "grows"))
	ends := first("the end of the rule", func(r *report.Record) bool { return r.Action == report.RuleEnds && r.Time.After(evicted) })
	given := first("limits that are given back", func(r *report.Record) bool { return done(report.MemoryRestore, "reader")(r) && r.Time.After(evicted) })
	if !slices.IsSortedFunc([]time.Time{fires, dropped, evicted, ends, given}, time.Time.Compare) || kept.After(evicted) {
		f.t.Errorf("fires %s, dropped %s, held %s, evicted %s, ends %s, given back %s, want them in this order", fires, dropped, kept, evicted, ends, given)
	}

	var steps int
	var freed float64
	for _, r := range records {
		switch {
		case r.Pod != "" && !slices.Contains([]string{"reader", "grows", "keeps"}, r.Pod), r.Action == report.Evict && r.Pod != "grows":
			f.t.Errorf("the audit file has %+v, want actions on the three pods and one eviction, of grows", r)
		case done(report.MemoryThrottle, "reader")(&r) && r.Time.Before(evicted):
			steps++

			if r.FreesBytes != nil {
				freed += *r.FreesBytes
			}
		}
	}

	since := func(at time.Time) time.Duration { return at.Sub(fires).Round(10 * time.Millisecond) }
	f.t.Logf("after the rule began to fire: first files dropped %s, growth held %s, evicted %s, rule ended %s, first room given back %s; %d steps took %.0f MiB of files from the reader",
		since(dropped), since(kept), since(evicted), since(ends), since(given), steps, freed/mebi)
}
