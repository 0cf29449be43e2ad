// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/ruleset"
	"crane.io/crane/internal/agent/topology"
	"crane.io/crane/internal/testbed/simnode/kernel"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

// fixture is a node with 8 CPUs in two zones: cores {0,1} {2,3} of node0 and {4,5} {6,7} of node1.
type fixture struct {
	*Manager

	t        testing.TB
	dir      string
	v1       bool
	tree     *kernel.Tree
	layout   cgroup.Layout
	clock    *testingclock.FakeClock
	topology *topology.NodeTopology
	pods     []*corev1.Pod
	state    *cluster.State
	dryRun   bool
	// memoryUnbound disables the setting for memory. latest has the bytes in use in the zones and the containers of the pod web.
	memoryUnbound bool
	latest        observe.Latest
	usedMemory    [2]units.Bytes
	webContainers []observe.Container
	writeError    func(file, value string) error
	events        []string
	log           []string
	writes        []string
}

func newFixture(t testing.TB, v1 bool) *fixture {
	t.Helper()

	b := &fixture{t: t, dir: t.TempDir(), v1: v1, clock: testingclock.NewFakeClock(time.Unix(1000, 0))}
	b.tree = &kernel.Tree{Dir: filepath.Join(b.dir, "sys/fs/cgroup"), CPUs: "0-7", Mems: "0-1"}
	if v1 {
		b.tree = &kernel.Tree{Dir: filepath.Join(b.dir, "sys/fs/cgroup/cpu,cpuacct"), V1: true, CPUs: "0-7", Mems: "0-1"}
	}

	b.makeGroup("kubepods")
	for path, content := range map[string]string{
		"sys/devices/system/cpu/online": "0-7\n", "sys/devices/system/node/node0/cpulist": "0-3\n", "sys/devices/system/node/node1/cpulist": "4-7\n",
		"sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 8388608 kB\nNode 0 MemFree: 0 kB\n", "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal: 8388608 kB\nNode 0 MemFree: 0 kB\n",
		"sys/devices/system/node/node0/distance": "10 20\n", "sys/devices/system/node/node1/distance": "20 10\n",
	} {
		b.writeFile(path, content)
	}

	for c := range 8 {
		b.writeFile(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/core_cpus_list", c), fmt.Sprintf("%d-%d\n", c/2*2, c/2*2+1))
	}

	b.setKubeletConfig("")
	b.publishMemory()
	b.startAgent()

	return b
}

func (b *fixture) writeFile(path, content string) {
	b.t.Helper()

	path = filepath.Join(b.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *fixture) setKubeletConfig(text string) {
	b.t.Helper()

	k, err := topology.ParseKubelet([]byte("kind: KubeletConfiguration\n" + text))
	if err != nil {
		b.t.Fatal(err)
	}

	m, err := topology.ReadMachine(host.Root(b.dir))
	if err != nil {
		b.t.Fatal(err)
	}

	b.topology = &topology.NodeTopology{Machine: m, Kubelet: k}
}

// publishMemory publishes a measurement with the bytes in use in the two zones of 8 GiB.
func (b *fixture) publishMemory() {
	s := &observe.Snapshot{At: b.clock.Now(), Pods: []observe.Pod{{UID: "web", Containers: b.webContainers}}}
	for i, used := range b.usedMemory {
		z := observe.Zone{ID: i}
		z.Memory.Value = host.ZoneMemory{Total: 8 << 30, Free: 8<<30 - used}
		z.Memory.OK = true
		s.Node.Zones = append(s.Node.Zones, z)
	}

	b.latest.Publish(s)
}

// predecessorStatePath is the state file of gocrane's agent.
const predecessorStatePath = "var/lib/kubelet/" + StateFile

// startAgent creates a manager as a starting agent does: it first undoes the changes of the previous one.
func (b *fixture) startAgent() {
	b.t.Helper()

	var err error
	if b.layout, err = cgroup.Detect(host.Root(b.dir)); err != nil {
		b.t.Fatal(err)
	}

	journal, err := act.OpenJournal(filepath.Join(b.dir, "changes.json"), b.layout, b)
	if err != nil {
		b.t.Fatal(err)
	}

	if err := journal.UndoAll(); err != nil {
		b.t.Fatal(err)
	}

	if b.dryRun {
		journal = nil
	}

	b.Manager = NewManager(Config{
		Layout: b.layout, View: b, Topology: func() *topology.NodeTopology { return b.topology }, Journal: journal, StatePath: filepath.Join(b.dir, StateFile),
		PredecessorStatePath: filepath.Join(b.dir, predecessorStatePath), Policy: numa.PolicyExclusive, Period: DefaultPeriod, BindMemory: !b.memoryUnbound, Latest: &b.latest, Clock: b.clock, Beat: func(string) {},
		Report: func(a report.Action) {
			if a.EventReason != "" {
				b.events = append(b.events, a.Pod.Name+" "+a.EventReason+": "+a.Reason)
			} else {
				b.log = append(b.log, string(a.Outcome)+" "+a.Pod.Name+": "+a.Reason)
			}
		},
		Log: funcr.New(func(_, args string) { b.log = append(b.log, args) }, funcr.Options{}),
	})

	b.t.Cleanup(b.Manager.tree.Close)
}

// Write implements act.FileWriter on the simulated kernel.
func (b *fixture) Write(file, value string) error {
	if b.writeError != nil {
		if err := b.writeError(file, value); err != nil {
			return err
		}
	}

	b.writes = append(b.writes, filepath.Base(file)+"="+value)
	return b.tree.Write(file, value)
}

// State implements cluster.Source.
func (b *fixture) State() *cluster.State {
	if b.state == nil {
		b.state = &cluster.State{Pods: b.pods, KnowsPods: true}
	}

	return b.state
}

func (b *fixture) Node() *corev1.Node  { return nil }
func (b *fixture) Pods() []*corev1.Pod { return b.pods }
func (b *fixture) Rules() ruleset.Set  { return ruleset.Set{} }
func (b *fixture) invalidateState()    { b.state = nil }
func (b *fixture) reported(text string) bool {
	return strings.Contains(strings.Join(append(b.log, b.events...), "\n"), text)
}

// makeGroup creates a cgroup; on v1 it copies the CPUs of the parent, as runtimes do.
func (b *fixture) makeGroup(path string) {
	b.t.Helper()

	if err := b.tree.Make(path); err != nil {
		b.t.Fatal(err)
	}

	if !b.v1 {
		return
	}

	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		at := filepath.Join(b.dir, "sys/fs/cgroup/cpuset")
		for part := range strings.SplitSeq(path, "/") {
			above := b.readFile(filepath.Join(at, file))
			at = filepath.Join(at, part)
			if b.readFile(filepath.Join(at, file)) != "" {
				continue
			}

			if err := b.tree.Write(filepath.Join(at, file), above); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

func (b *fixture) readFile(path string) string {
	b.t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}

	return strings.TrimSpace(string(content))
}

func containerID(pod, container string) string { return fmt.Sprintf("%064x", pod+"-"+container) }

func containerPath(pod, container string) string {
	id := containerID(pod, container)
	return "kubepods/pod" + pod + "/" + id[len(id)-64:]
}

// runPod creates a pod whose containers a, b, c request so many CPUs each (0 for a shared container), with cgroups and a sandbox.
func (b *fixture) runPod(name, zones string, cpus ...int) *corev1.Pod {
	b.t.Helper()

	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name), Annotations: map[string]string{}, CreationTimestamp: metav1.Unix(int64(len(b.pods)), 0)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}

	if zones != "" {
		p.Annotations[topologyv1alpha1.AnnotationPodTopologyResult] = topologyResult(zones)
	}

	for i, n := range cpus {
		c := corev1.Container{Name: string(rune('a' + i)), Resources: resources(n)}
		p.Spec.Containers = append(p.Spec.Containers, c)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, ContainerID: "containerd://" + strings.TrimPrefix(containerPath(name, c.Name), "kubepods/pod"+name+"/")})
		b.startContainer(name, c.Name)
	}

	b.startContainer(name, "sandbox")
	b.pods = append(b.pods, p)
	b.invalidateState()

	return p
}

// startContainer creates the cgroup of a container with one process.
func (b *fixture) startContainer(pod, container string) {
	b.t.Helper()

	b.makeGroup(containerPath(pod, container))
	if err := b.tree.Attach(containerPath(pod, container), 77); err != nil {
		b.t.Fatal(err)
	}
}

// stopContainer removes the cgroup of a container.
func (b *fixture) stopContainer(pod, container string) {
	b.t.Helper()

	if err := b.tree.Detach(containerPath(pod, container)); err != nil {
		b.t.Fatal(err)
	}

	if err := b.tree.Remove(containerPath(pod, container)); err != nil {
		b.t.Fatal(err)
	}
}

// topologyResult returns the scheduler's annotation for zones such as node0=2,node1=1.
func topologyResult(zones string) string {
	var parts []string
	for part := range strings.SplitSeq(zones, ",") {
		name, n, _ := strings.Cut(part, "=")
		parts = append(parts, fmt.Sprintf(`{"name":%q,"type":"Node","resources":{"capacity":{"cpu":%q}}}`, name, n))
	}

	return "[" + strings.Join(parts, ",") + "]"
}

func resources(n int) corev1.ResourceRequirements {
	if n == 0 {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}}
	}

	list := corev1.ResourceList{"cpu": *resource.NewQuantity(int64(n), resource.DecimalSI), "memory": resource.MustParse("1Gi")}
	return corev1.ResourceRequirements{Requests: list, Limits: list}
}

// advance moves the clock by one second and reconciles.
func (b *fixture) advance() {
	b.clock.Step(time.Second)
	b.publishMemory()
	b.Reconcile()
}

// cpus and mems return the setting of a container's cgroup. A list that was never set is empty on v2 and complete on v1.
func (b *fixture) cpus(pod, container string) string {
	return b.readGroupSetting(pod, container, cgroup.FileCPUs)
}

func (b *fixture) mems(pod, container string) string {
	return b.readGroupSetting(pod, container, cgroup.FileMems)
}

func (b *fixture) readGroupSetting(pod, container, file string) string {
	b.t.Helper()

	path, err := b.layout.SettingFile(containerPath(pod, container), file)
	if err != nil {
		b.t.Fatal(err)
	}

	return b.readFile(path)
}

// expectCPUs fails unless containers run on the given CPUs (pod/container=CPUs).
func (b *fixture) expectCPUs(when string, want ...string) {
	b.t.Helper()

	for _, w := range want {
		name, cpus, _ := strings.Cut(w, "=")
		pod, container, _ := strings.Cut(name, "/")
		if got := b.cpus(pod, container); got != cpus {
			b.t.Errorf("%s: %s runs on %q, want %q\n%s", when, name, got, cpus, strings.Join(b.log, "\n"))
		}
	}
}
