// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/test/e2e/node"
	"crane.io/crane/test/hostrecording"
)

// recordEnv names a directory for recordings of nodes, such as test/hostrecording/recorded.
const recordEnv = "CRANE_NODES_RECORD"

// TestRecord records the files that an agent reads on nodes with pods of each QoS class, twice, in the format of package hostrecording. It runs
// only if the environment variable names a directory.
func TestRecord(t *testing.T) {
	dir := os.Getenv(recordEnv)
	if dir == "" {
		t.Skip("$" + recordEnv + " names no directory for recordings")
	}

	for name, o := range map[string]node.Options{
		"debian-v2-cgroupfs-containerd":    {Machine: true, Cgroup: 2},
		"debian-v2-systemd-containerd":     {CgroupDriver: realnode.Systemd},
		"debian-hybrid-systemd-containerd": {CgroupDriver: realnode.Systemd, Cgroup: 1},
		"debian-v2-cgroupfs-crio":          {Machine: true, Cgroup: 2, Runtime: realnode.CRIO},
		"debian-v2-systemd-crio":           {CgroupDriver: realnode.Systemd, Runtime: realnode.CRIO},
	} {
		t.Run(name, func(t *testing.T) {
			o.CPUManagerPolicy = realnode.CPUManagerStatic
			o.ReservedCPUs = "0"

			text := record(t, node.Start(t, o))
			if _, err := hostrecording.Parse(text); err != nil {
				t.Fatal(err)
			}

			if err := os.WriteFile(filepath.Join(dir, name+".txt"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// identity is the UID and container ID of a pod in all recordings, which replace the real ones, so that one list of pods fits all
// recordings.
type identity struct{ uid, container string }

func recordedIdentities() map[string]identity {
	id := func(first string) string { return strings.Repeat(first+"4b5c6d7e8f90a1", 4) }
	return map[string]identity{
		"web": {"6f1c2b1a-0d6e-4a9e-9d53-5a7f0f6f1a01", id("01")}, "sort": {"9b8de3f4-3c1b-4a57-8f4e-2f6a1a3f7c02", id("03")},
		"grep": {"c2b9f6a0-7f43-4f0e-bb65-1f0f2a9d8e03", id("04")}, "alone": {"3e5d7a90-52c4-4c1e-9a77-b1d2c3e4f504", id("06")},
	}
}

// recorder reads a node's files from a HostPod.
type recorder struct {
	*node.Node
	pod  *corev1.Pod
	pods map[string]*corev1.Pod
}

// recordedSpan is the time between the two reads.
const recordedSpan = 10 * time.Second

func record(t *testing.T, n *node.Node) string {
	t.Helper()

	r := &recorder{Node: n, pods: map[string]*corev1.Pod{}}
	small := node.Resources("500m", "64Mi")
	whole := node.Resources("1", "32Mi")
	for _, pod := range []*corev1.Pod{
		n.Pod("web", "cpu-hog", []string{"-threads", "2"}, small, small),
		n.Pod("sort", "memory-hog", []string{"-mib", "24", "-file", "/tmp/cache"}, node.Resources("100m", "16Mi"), node.Resources("", "128Mi")),
		n.Pod("grep", "memory-hog", []string{"-mib", "8"}, nil, nil),
		n.Pod("alone", "cpu-hog", []string{"-threads", "1"}, whole, whole),
	} {
		r.pods[pod.Name] = n.Create(t, pod)
	}

	for name, pod := range r.pods {
		r.pods[name] = n.Await(t, pod, "runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	}

	r.pod = n.Run(t, n.HostPod("watcher"))
	first, begin := r.files(t)
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 2*recordedSpan, true, func(context.Context) (bool, error) {
		return time.Since(begin) >= recordedSpan, nil
	}); err != nil {
		t.Fatal(err)
	}

	second, end := r.files(t)
	maps.DeleteFunc(second, func(path, content string) bool { return first[path] == content })
	var b strings.Builder
	b.WriteString(r.header(t))
	writeMoment(&b, 0, first)
	writeMoment(&b, end.Sub(begin), second)

	return r.scrub(t, b.String())
}

// cgroupFiles lists the cgroup files, of either version, that an agent reads or writes.
func cgroupFiles() []string {
	return []string{
		"cgroup.controllers", "cgroup.subtree_control", "cpu.stat", "cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle", "cpu.pressure", "cpuset.cpus",
		"cpuset.cpus.effective", "cpuset.mems", "memory.current", "memory.high", "memory.max", "memory.pressure", "memory.reclaim", "memory.stat", "io.pressure", "io.stat",
		"cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us", "cpu.shares", "cpuacct.usage", "memory.usage_in_bytes", "memory.limit_in_bytes",
		"blkio.throttle.io_service_bytes", "blkio.throttle.io_serviced",
	}
}

// files returns all recorded files by path, and the time of reading the cgroups.
func (r *recorder) files(t *testing.T) (map[string]string, time.Time) {
	t.Helper()

	files := r.walk(t, "sys/fs/cgroup", cgroupFiles()...)
	at := time.Now()
	maps.Copy(files, r.walk(t, "sys/devices/system/cpu", "online", "possible", "present", "core_id", "physical_package_id", "thread_siblings_list", "core_cpus_list"))
	maps.Copy(files, r.walk(t, "sys/devices/system/node", "online", "cpulist", "distance", "meminfo", "nr_hugepages"))
	maps.Copy(files, r.dump(t, "proc/1/net/dev", "proc/cpuinfo", "proc/diskstats", "proc/loadavg", "proc/meminfo", "proc/pressure/cpu", "proc/pressure/io",
		"proc/pressure/memory", "proc/stat", "proc/sys/kernel/osrelease", "sys/block/vda/stat", "sys/block/vdb/stat",
		"var/lib/kubelet/config.yaml", "var/lib/kubelet/cpu_manager_state", "var/lib/kubelet/memory_manager_state"))

	files["proc/stat"] = regexp.MustCompile(`(?m)^(intr|softirq) .*\n`).ReplaceAllString(files["proc/stat"], "")
	files[map[string]string{realnode.Containerd: "run/containerd/containerd.sock", realnode.CRIO: "run/crio/crio.sock"}[r.Runtime()]] = ""
	watcher := strings.ReplaceAll(string(r.pod.UID), "-", "_")
	maps.DeleteFunc(files, func(path, _ string) bool {
		// Groups that are not of pods only have to exist.
		other := regexp.MustCompile(`^sys/fs/cgroup/.*\.(slice|scope|mount)/`).MatchString(path) && !strings.Contains(path, "kubepods")
		return strings.Contains(strings.ReplaceAll(path, "-", "_"), watcher) || other && !slices.Contains([]string{"cpu.weight", "cpu.shares"}, filepath.Base(path))
	})

	return files, at
}

// walk reads all files with these names below a directory.
func (r *recorder) walk(t *testing.T, dir string, names ...string) map[string]string {
	t.Helper()

	found := r.exec(t, append([]string{"copy", node.HostRoot + "/" + dir}, names...)...)
	files := map[string]string{}
	for path, content := range found {
		files[dir+path] = content
	}

	return files
}

func (r *recorder) dump(t *testing.T, paths ...string) map[string]string {
	t.Helper()

	args := []string{"dump"}
	for _, path := range paths {
		args = append(args, node.HostRoot+"/"+path)
	}

	files := map[string]string{}
	for path, content := range r.exec(t, args...) {
		files[strings.TrimPrefix(path, node.HostRoot+"/")] = content
	}

	return files
}

// exec runs the program cgroups, which prints contents by path.
func (r *recorder) exec(t *testing.T, args ...string) map[string]string {
	t.Helper()

	out, err := r.Exec(t, r.pod, append([]string{"/nodekit", "cgroups"}, args...)...)
	found := map[string]string{}
	if err == nil {
		err = json.Unmarshal([]byte(out), &found)
	}

	if err != nil {
		t.Fatalf("running %s: %v", args[0], err)
	}

	return found
}

// header describes the recording with the versions of the node's programs.
func (r *recorder) header(t *testing.T) string {
	t.Helper()

	object, err := r.Client.CoreV1().Nodes().Get(t.Context(), r.Name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	info := object.Status.NodeInfo
	init := "nodekit, which starts " + r.Runtime() + " and the kubelet"
	driver := "cgroupfs"
	if r.Systemd() {
		out, err := r.ExecOnNode(t, r.pod, "systemctl", "--version")
		if err != nil {
			t.Fatal(err)
		}

		init = strings.SplitN(out, "\n", 2)[0]
		driver = "systemd"
	}

	return fmt.Sprintf(`# Recorded on a real node by TestRecord of test/e2e/node: a virtual machine with Linux %s, first process %s,
# kubelet %s with the cgroup driver %s and the static CPU manager policy, %s, runc. Pods: web, of class Guaranteed, busy
# above its limit of half a core; sort, Burstable, with files in its cache; grep, BestEffort, idle; alone, Guaranteed with a CPU for itself.
# UIDs of pods and ids of their containers are others in the place of their own, those of sandboxes are as they were. Of groups that are no
# pods' cpu.weight or cpu.shares alone is here; of /proc/stat the lines of interrupts are left out; of the second time what had not changed.
`, info.KernelVersion, init, info.KubeletVersion, driver, info.ContainerRuntimeVersion)
}

// scrub replaces identities that differ between recordings.
func (r *recorder) scrub(t *testing.T, text string) string {
	t.Helper()

	put := func(own, other string) {
		if !strings.Contains(text, own) {
			t.Errorf("the recording lacks %s, want it there", own)
		}
		text = strings.ReplaceAll(text, own, other)
	}

	for name, as := range recordedIdentities() {
		pod := r.pods[name]
		_, container, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
		put(container, as.container)

		uid := string(pod.UID)
		if r.Systemd() {
			put(strings.ReplaceAll(uid, "-", "_"), strings.ReplaceAll(as.uid, "-", "_"))
			text = strings.ReplaceAll(text, uid, as.uid)
		} else {
			put(uid, as.uid)
		}
	}

	return strings.ReplaceAll(text, r.Name(), "node-1")
}

func writeMoment(b *strings.Builder, at time.Duration, files map[string]string) {
	fmt.Fprintf(b, "== %s ==\n", at.Round(time.Millisecond))
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(b, "-- %s --\n%s", path, files[path])
		if content := files[path]; content != "" && !strings.HasSuffix(content, "\n") {
			b.WriteByte('\n') // required by the recording format
		}
	}
}
