// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/topology"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/test/hostrecording"
)

// BenchmarkStep110 measures one reconciliation of a recorded tree with 110 pods, one of which has two exclusive CPUs: without changes
// (four of five reconciliations) and with every container compared (the fifth).
func BenchmarkStep110(b *testing.B) {
	const recorded = "9b8de3f4-3c1b-4a57-8f4e-2f6a1a3f7c02"
	for name, pass := range map[string]time.Duration{"quiet": 0, "all": DefaultPeriod} {
		b.Run(name, func(b *testing.B) {
			on := newFixture(b, false)
			rec := hostrecording.ForTest(b, "v2-systemd-containerd")
			rec.Multiply(recorded, 106)

			// The recording has no CPU lists.
			err := filepath.WalkDir(filepath.Join(rec.Dir, "sys/fs/cgroup/kubepods.slice"), func(path string, e fs.DirEntry, err error) error {
				if err != nil || !e.IsDir() {
					return err
				}

				return os.WriteFile(filepath.Join(path, cgroup.FileCPUs), []byte("\n"), 0o600)
			})
			if err != nil {
				b.Fatal(err)
			}

			layout, err := cgroup.Detect(host.Root(rec.Dir))
			if err != nil {
				b.Fatal(err)
			}

			tree := cgroup.NewTree(layout, &host.Reader{})
			if err := tree.Scan(); err != nil {
				b.Fatal(err)
			}

			for i, p := range tree.Pods() {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.UID, Namespace: "n", UID: types.UID(p.UID)}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
				pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: resources(0)}}
				if i == 0 {
					pod.Spec.Containers[0].Resources = resources(2)
					pod.Annotations = map[string]string{topologyv1alpha1.AnnotationPodTopologyResult: topologyResult("node0=2")}
				}

				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + p.Containers[0].ID}}
				on.pods = append(on.pods, pod)
			}

			tree.Close()
			if len(on.pods) < 110 {
				b.Fatalf("the host has %d pods, want at least 110", len(on.pods))
			}

			m := NewManager(Config{
				Layout: layout, View: on, Topology: func() *topology.NodeTopology { return on.topology }, StatePath: filepath.Join(b.TempDir(), StateFile), Policy: numa.PolicyExclusive,
				Period: DefaultPeriod, Clock: on.clock, Beat: func(string) {}, Report: func(report.Action) {}, Log: logr.Discard(),
			})
			b.Cleanup(m.tree.Close)
			m.Reconcile()

			if s := m.Status(); !s.Active || s.Exclusive.Len() != 2 {
				b.Fatalf("Status() = %+v, want an active manager with 2 exclusive CPUs", s)
			}

			b.ReportAllocs()
			before := processCPUTime(b)

			for b.Loop() {
				on.clock.Step(pass)
				m.Reconcile()
			}
			b.ReportMetric(float64(processCPUTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processCPUTime returns the CPU time of this process in nanoseconds. Unlike the wall time it does not depend on the machine's load.
func processCPUTime(b *testing.B) int64 {
	b.Helper()

	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}

	return u.Utime.Nano() + u.Stime.Nano()
}
