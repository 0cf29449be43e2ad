// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/internal/testbed/realnode/nodeinit"
	"crane.io/crane/test/e2e/node"
)

// TestNative tests a node with the host's own cgroup version.
func TestNative(t *testing.T) {
	// CPU 0 is shared, the others can be assigned exclusively.
	runSuite(t, node.Start(t, node.Options{CPUManagerPolicy: "static", ReservedCPUs: "0"}))
}

// TestCRIO tests a node with CRI-O instead of containerd.
func TestCRIO(t *testing.T) {
	n := node.Start(t, node.Options{Runtime: realnode.CRIO, CPUManagerPolicy: "static", ReservedCPUs: "0"})
	object, err := n.Client.CoreV1().Nodes().Get(t.Context(), n.Name(), metav1.GetOptions{})
	if err != nil || !strings.HasPrefix(object.Status.NodeInfo.ContainerRuntimeVersion, "cri-o://") {
		t.Errorf("the runtime is %q, %v, want cri-o", object.Status.NodeInfo.ContainerRuntimeVersion, err)
	}

	runSuite(t, n)
}

// TestMachine tests a node with cgroup version 2 in a virtual machine on any host.
func TestMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("an emulated machine takes minutes, and one run of many failed for no reason found yet")
	}

	n := node.Start(t, node.Options{Machine: true, Cgroup: 2, CPUManagerPolicy: "static", ReservedCPUs: "0"})
	cgroups := runSuite(t, n)
	t.Run("answers-as-the-simulated-kernel", func(t *testing.T) { testConformance(t, cgroups) })
}

// TestMachineOfVersion1 tests a node with cgroup version 1 in a virtual machine.
func TestMachineOfVersion1(t *testing.T) {
	if testing.Short() {
		t.Skip("an emulated machine takes minutes")
	}

	n := node.Start(t, node.Options{Machine: true, Cgroup: 1})
	cgroups := n.Cgroups(t)
	t.Run("runs", func(t *testing.T) { testRuns(t, n) })
	t.Run("resizes", func(t *testing.T) { testResize(t, n, cgroups) })
}

// runSuite tests the basic functions of a node of any kind and returns its cgroups.
func runSuite(t *testing.T, n *node.Node) *node.Cgroups {
	t.Helper()

	cgroups := n.Cgroups(t)
	t.Run("runs", func(t *testing.T) { testRuns(t, n) })
	t.Run("resizes", func(t *testing.T) { testResize(t, n, cgroups) })
	t.Run("kills-out-of-memory", func(t *testing.T) { testOOM(t, n) })
	t.Run("throttles", func(t *testing.T) { testThrottle(t, n, cgroups) })
	t.Run("keeps-cpus-exclusive", func(t *testing.T) { testExclusive(t, n, cgroups) })
	t.Run("lets-an-agent-write", func(t *testing.T) { testWrite(t, n, cgroups) })

	return cgroups
}

// testRuns checks that a pod runs, that its logs and exec work, and that it reaches the API server.
func testRuns(t *testing.T, n *node.Node) {
	pod := n.Run(t, n.Pod("runs", "memory-hog", []string{"-mib", "1"}, nil, nil))
	if pod.Status.PodIP == "" || pod.Spec.NodeName != n.Name() {
		t.Errorf("the pod has address %q on node %q, want an address and its own node", pod.Status.PodIP, pod.Spec.NodeName)
	}

	n.Eventually(t, "logs", func() error {
		logs, err := n.Logs(t, pod)
		if err == nil && !strings.Contains(logs, `{"mib":1}`) {
			err = fmt.Errorf("logs are %q", logs)
		}

		return err
	})

	out, err := n.Exec(t, pod, "/nodekit", "cgroups", "read", "/proc/sys/kernel/hostname")
	if err != nil || out != pod.Name+"\n" {
		t.Errorf("a program in the pod prints %q, %v; want its host name", out, err)
	}
	if _, err := n.Exec(t, pod, "/nodekit", "cgroups", "read", "/nowhere"); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("a program that fails: %v, want its message", err)
	}

	out, err = n.Exec(t, pod, "/nodekit", "latency-client", "-target", "10.96.0.1:443", "-connect", "-rate", "5", "-reports", "1")
	var report struct{ Requests, Errors int }
	if err == nil {
		err = json.Unmarshal([]byte(out), &report)
	}
	if err != nil || report.Requests == 0 || report.Errors > 0 {
		t.Errorf("requests to the API server from a pod: %q, %v, want no errors", out, err)
	}
}

// testResize checks that a resize in place changes the cgroups without a restart.
func testResize(t *testing.T, n *node.Node, cgroups *node.Cgroups) {
	// The kubelet does not resize Guaranteed pods while it assigns exclusive CPUs.
	pod := n.Run(t, n.Pod("resizes", "pause", nil, node.Resources("50m", "32Mi"), node.Resources("200m", "64Mi")))
	awaitLimits(t, n, cgroups, pod, 0.2, 64<<20)

	patch := `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"60m"},"limits":{"cpu":"300m","memory":"96Mi"}}}]}}`
	if _, err := n.Client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "resize"); err != nil {
		t.Fatal(err)
	}

	awaitLimits(t, n, cgroups, pod, 0.3, 96<<20)
	after := n.Await(t, pod, "says its new size", func(p *corev1.Pod) bool {
		r := p.Status.ContainerStatuses[0].Resources
		return r != nil && r.Limits.Cpu().MilliValue() == 300
	})

	if s := after.Status.ContainerStatuses[0]; s.RestartCount != 0 || s.ContainerID != pod.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the container was restarted by the resize: %+v, want the same container without a restart", s)
	}
}

func awaitLimits(t *testing.T, n *node.Node, cgroups *node.Cgroups, pod *corev1.Pod, cores float64, memory int64) {
	t.Helper()

	n.Eventually(t, "limits in the cgroup files", func() error {
		ofPod, err := cgroups.PodLimits(t, pod)
		if err != nil {
			return err
		}

		ofContainer, err := cgroups.ContainerLimits(t, pod)
		if err != nil {
			return err
		}

		for _, l := range []node.Limits{ofPod, ofContainer} {
			if math.Abs(l.Cores-cores) > 1e-6 || l.Memory != memory {
				return fmt.Errorf("pod %+v, container %+v; want %g cores and %d bytes", ofPod, ofContainer, cores, memory)
			}
		}

		return nil
	})
}

// testOOM checks that a container above its memory limit is killed with the right status.
func testOOM(t *testing.T, n *node.Node) {
	pod := n.Pod("oom", "memory-hog", []string{"-mib", "200"}, nil, node.Resources("", "48Mi"))
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever

	pod = n.Create(t, pod)
	pod = n.Await(t, pod, "fails", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if end := pod.Status.ContainerStatuses[0].State.Terminated; end == nil || end.Reason != "OOMKilled" || end.ExitCode != 137 {
		t.Errorf("the container ended as %+v, want OOMKilled with exit code 137", end)
	}
}

// testThrottle checks that a container is throttled to its quota and that the kernel counts the periods.
func testThrottle(t *testing.T, n *node.Node, cgroups *node.Cgroups) {
	pod := n.Run(t, n.Pod("throttled", "cpu-hog", []string{"-threads", "2"}, node.Resources("50m", ""), node.Resources("250m", "")))
	var first int64
	n.Eventually(t, "throttled periods", func() error {
		throttled, err := cgroups.Throttled(t, pod)
		if err != nil {
			return err
		}

		if first == 0 {
			first = throttled
		}

		if throttled < first+5 || first == 0 {
			return fmt.Errorf("throttled in %d periods, then in %d", first, throttled)
		}

		return nil
	})

	n.Eventually(t, "reports of the hog", func() error {
		reports, err := readHogReports(t, n, pod)
		if err != nil {
			return err
		}

		if len(reports) < 3 {
			return fmt.Errorf("%d reports", len(reports))
		}

		// The first report covers the start. A busy machine may give the hog less than its quota, never much more.
		for _, r := range reports[1:] {
			if r.Cores > 0.25*1.3 {
				t.Errorf("the hog used %.2f cores in a second, want its quota of 0.25", r.Cores)
			}
		}

		return nil
	})
}

type hogReport struct {
	Cores   float64 `json:"cores"`
	Allowed int     `json:"allowed"`
}

func readHogReports(t *testing.T, n *node.Node, pod *corev1.Pod) ([]hogReport, error) {
	logs, err := n.Logs(t, pod)
	if err != nil {
		return nil, err
	}

	var reports []hogReport
	for line := range strings.Lines(logs) {
		var r hogReport
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}

		reports = append(reports, r)
	}

	return reports, nil
}

// testExclusive checks that exclusive CPUs are in the cpuset of their pod and not in that of others.
func testExclusive(t *testing.T, n *node.Node, cgroups *node.Cgroups) {
	shared := n.Run(t, n.Pod("shared", "pause", nil, nil, nil))
	before, err := cgroups.ContainerLimits(t, shared)
	if err != nil {
		t.Fatal(err)
	}

	whole := node.Resources("1", "32Mi")
	exclusive := n.Run(t, n.Pod("exclusive", "cpu-hog", []string{"-threads", "1"}, whole, whole))
	n.Eventually(t, "exclusive CPU", func() error {
		mine, err := cgroups.ContainerLimits(t, exclusive)
		if err != nil {
			return err
		}

		others, err := cgroups.ContainerLimits(t, shared)
		if err != nil {
			return err
		}

		if mine.CPUs != "1" || others.CPUs == before.CPUs || cpusOverlap(t, mine.CPUs, others.CPUs) {
			return fmt.Errorf("the exclusive pod has CPUs %q, the other %q, before %q", mine.CPUs, others.CPUs, before.CPUs)
		}

		return nil
	})

	n.Eventually(t, "the hog sees one CPU", func() error {
		reports, err := readHogReports(t, n, exclusive)
		if err == nil && (len(reports) == 0 || reports[len(reports)-1].Allowed != 1) {
			err = fmt.Errorf("reports are %+v", reports)
		}

		return err
	})

	n.Delete(t, exclusive)
	n.Eventually(t, "CPU back in the shared pool", func() error {
		others, err := cgroups.ContainerLimits(t, shared)
		if err == nil && others.CPUs != before.CPUs {
			err = fmt.Errorf("CPUs %q, want %q", others.CPUs, before.CPUs)
		}

		return err
	})
}

// testWrite checks that a DaemonSet's pod can change a cgroup of the node through a host path.
func testWrite(t *testing.T, n *node.Node, cgroups *node.Cgroups) {
	file := "cpu.cfs_quota_us"
	value := "50000"
	want := "50000"
	if n.Cgroup() == 2 {
		file = "cpu.max"
		value = "50000 100000"
		want = "50000 100000"
	}

	path := cgroups.Dir("cpu", "besteffort") + "/" + file
	before, err := cgroups.Read(t, path)
	if err != nil {
		t.Fatal(err)
	}

	n.Eventually(t, "a write", func() error { return cgroups.Write(t, path, value) })
	if got, err := cgroups.Read(t, path); err != nil || got != want || got == before {
		t.Errorf("%s holds %q, %v, want %q, written over %q", path, got, err, value, before)
	}

	n.Eventually(t, "a write that the kernel refuses", func() error {
		if err := cgroups.Write(t, path, "nonsense"); err == nil || !strings.Contains(err.Error(), "invalid argument") {
			return fmt.Errorf("nonsense for a quota: %w", err)
		}

		return nil
	})

	n.Eventually(t, "a write", func() error { return cgroups.Write(t, path, before) })
}

// cpusOverlap reports whether two CPU lists have a common CPU.
func cpusOverlap(t *testing.T, a, b string) bool {
	t.Helper()

	in, err1 := nodeinit.ParseCPUs(a)
	of, err2 := nodeinit.ParseCPUs(b)
	if err1 != nil || err2 != nil {
		t.Fatalf("lists of CPUs %q and %q: %v, %v", a, b, err1, err2)
	}

	return slices.ContainsFunc(in, func(cpu int) bool { return slices.Contains(of, cpu) })
}
