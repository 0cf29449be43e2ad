// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// cpuFixture is the recorded host of four cores in the zones node0 and node2, with cpusets and a pod of the API server. It acts as the
// kubelet for the pod's container main.
type cpuFixture struct {
	t   *testing.T
	dir string
	pod *corev1.Pod
}

// podsGroup is the pods' cgroup of the recorded host.
const podsGroup = "sys/fs/cgroup/kubepods.slice"

func newCPUFixture(t *testing.T, c client.Client, node string) *cpuFixture {
	t.Helper()

	f := &cpuFixture{t: t, dir: recordedHost(t)}
	configureKubelet(t, f.dir, "reservedSystemCPUs: \"0\"\n")
	list := corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")}
	namespace(t, c, node)

	f.pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: node, Name: "pinned"},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64(0)), Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "main", Image: "crane.local/nothing:1", Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}},
		},
	}

	harness.Create(t, c, f.pod)
	// New pods lose the annotation.
	f.pod.Annotations = map[string]string{
		topologyv1alpha1.AnnotationPodTopologyResult: `[{"name":"node2","type":"Node","resources":{"capacity":{"cpu":"2"}}}]`,
	}

	if err := c.Update(t.Context(), f.pod); err != nil {
		t.Fatal(err)
	}

	f.pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + f.container()}},
	}

	if err := c.Status().Update(t.Context(), f.pod); err != nil {
		t.Fatal(err)
	}

	for _, zone := range []string{"0", "2"} { // the recorded zones are nearly full
		f.write("sys/devices/system/node/node"+zone+"/meminfo", fmt.Sprintf("Node %[1]s MemTotal: 8192000 kB\nNode %[1]s MemFree: 6144000 kB", zone))
	}

	f.write(podsGroup+"/cpuset.cpus", "")
	f.write(podsGroup+"/cpuset.cpus.effective", "0-3")
	f.write(podsGroup+"/cpuset.mems.effective", "0,2")
	f.write(f.group()+"/cpu.max", "200000 100000")

	for _, group := range append(f.others(), f.group()) {
		f.write(group+"/cpuset.cpus", "")
		f.write(group+"/cpuset.mems", "")
	}

	return f
}

func (f *cpuFixture) container() string { return strings.Repeat("a7", 32) }

func (f *cpuFixture) group() string {
	uid := strings.ReplaceAll(string(f.pod.UID), "-", "_")
	return fmt.Sprintf("%s/kubepods-pod%s.slice/cri-containerd-%s.scope", podsGroup, uid, f.container())
}

// others returns the recorded containers, which the API server does not know.
func (f *cpuFixture) others() []string {
	f.t.Helper()

	var out []string
	for _, pattern := range []string{"*.slice/cri-containerd-*.scope", "*.slice/*.slice/cri-containerd-*.scope"} {
		found, err := filepath.Glob(filepath.Join(f.dir, podsGroup, pattern))
		if err != nil {
			f.t.Fatal(err)
		}

		for _, dir := range found {
			if group := strings.TrimPrefix(dir, f.dir+"/"); group != f.group() {
				out = append(out, group)
			}
		}
	}

	if len(out) == 0 {
		f.t.Fatal("the recording has no containers, want at least one")
	}

	return out
}

func (f *cpuFixture) write(path, text string) {
	f.t.Helper()
	writeFile(f.t, filepath.Join(f.dir, path), text+"\n")
}

// runs waits until the pod's container runs on the first CPUs with memory of the given zones, and all others run on the rest.
func (f *cpuFixture) runs(own, mems, rest string) {
	f.t.Helper()

	text := func(path string) string {
		content, err := os.ReadFile(filepath.Join(f.dir, path))
		if err != nil {
			f.t.Fatal(err)
		}

		return strings.TrimSpace(string(content))
	}

	eventually(f.t, fmt.Sprintf("the container runs on %q and the others on %q", own, rest), func(context.Context) error {
		if cpus, from := text(f.group()+"/cpuset.cpus"), text(f.group()+"/cpuset.mems"); cpus != own || from != mems {
			return fmt.Errorf("it runs on %q with memory of %q", cpus, from)
		}

		for _, group := range f.others() {
			if cpus := text(group + "/cpuset.cpus"); cpus != rest {
				return fmt.Errorf("%s runs on %q", group, cpus)
			}
		}

		return nil
	})
}

// TestCPUsOfAProcess checks that the agent gives a container the CPUs chosen by the scheduler, reports it and undoes it at the end, or in
// the next agent after a kill.
func TestCPUsOfAProcess(t *testing.T) {
	c := newClient(t)
	harness.Create(t, c, newNode("cpus"))
	f := newCPUFixture(t, c, "cpus")
	flags := []string{
		"--enforce=cpu-manager", "--feature-gates=NodeResourceTopology=true,CraneCPUManager=true", "--host-root=" + f.dir, "--state-dir=" + t.TempDir(),
		"--cpu-manager-bind-memory",
	}
	first := startAgent(t, "cpus", flags...)
	f.runs("2-3", "2", "0-1")
	first.awaitLog(t, "action=cpu-manager", "outcome=done", "pinned")

	eventually(t, "the event", func(ctx context.Context) error {
		var events corev1.EventList
		if err := c.List(ctx, &events, client.InNamespace("cpus")); err != nil {
			return err
		}

		for i := range events.Items {
			if e := &events.Items[i]; e.Reason == "CPUsAssigned" && e.InvolvedObject.Name == "pinned" && strings.Contains(e.Message, "runs on CPUs 2-3 by policy exclusive") {
				return nil
			}
		}

		return errors.New("there is none")
	})

	eventually(t, "the metrics", func(ctx context.Context) error {
		if got, err := first.metric(ctx, `crane_agent_cpu_manager_cpus{set="exclusive"}`); err != nil || got != "2" {
			return fmt.Errorf("%q: %w", got, err)
		}

		return nil
	})

	if err := first.Terminate(t); err != nil {
		t.Error(err)
	}

	f.runs("", "", "")
	second := startAgent(t, "cpus", flags...)
	f.runs("2-3", "2", "0-1")
	second.Kill()

	// The next agent assigns no CPUs and undoes the previous assignment.
	startAgent(t, "cpus", "--enforce=cpu-throttle", flags[2], flags[3])
	f.runs("", "", "")
}

// TestCPUsAreTheKubelets checks that the agent assigns no CPUs if the kubelet does, and reports why.
func TestCPUsAreTheKubelets(t *testing.T) {
	c := newClient(t)
	harness.Create(t, c, newNode("cpus-static"))
	f := newCPUFixture(t, c, "cpus-static")
	configureKubelet(t, f.dir, "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n")
	a := startAgent(t, "cpus-static", "--enforce=cpu-manager", "--feature-gates=NodeResourceTopology=true,CraneCPUManager=true", "--host-root="+f.dir)
	a.awaitLog(t, "assigning no CPUs: the kubelet assigns CPUs itself")
	f.runs("", "", "")
}

// TestCPUsOfGocrane checks that assignments of gocrane's agent are taken over from the kubelet's directory and reset at the end.
func TestCPUsOfGocrane(t *testing.T) {
	c := newClient(t)
	harness.Create(t, c, newNode("cpus-gocrane"))
	f := newCPUFixture(t, c, "cpus-gocrane")
	f.write("var/lib/kubelet/crane_cpu_manager_state",
		fmt.Sprintf(`{"policyName":"static","defaultCpuSet":"0-1","entries":{%q:{"main":"2-3"}},"checksum":1357924680}`, f.pod.UID))
	f.write(f.group()+"/cpuset.cpus", "2-3")

	for _, group := range f.others() {
		f.write(group+"/cpuset.cpus", "0-1")
	}

	flags := []string{
		"--enforce=cpu-manager", "--feature-gates=NodeResourceTopology=true,CraneCPUManager=true", "--host-root=" + f.dir, "--state-dir=" + t.TempDir(),
		"--cpu-manager-bind-memory",
	}
	first := startAgent(t, "cpus-gocrane", flags...)
	first.awaitLog(t, "adopting the CPUs assigned by gocrane's agent", "containers=1")
	f.runs("2-3", "2", "0-1")

	if err := first.Terminate(t); err != nil {
		t.Error(err)
	}

	f.runs("0-3", "", "0-3")
	startAgent(t, "cpus-gocrane", flags...)
	f.runs("2-3", "2", "0-1")
}
