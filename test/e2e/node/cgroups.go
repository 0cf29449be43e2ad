// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/testbed/realnode"
)

// hostCgroups is the mount point of the node's cgroups in the pod of Cgroups.
const hostCgroups = "/host/cgroup"

// Cgroups reads and writes the cgroup files of a node. It writes as an agent does, from a privileged pod of a DaemonSet with a host path.
// It reads the same way on a virtual machine, and directly on a node in namespaces.
type Cgroups struct {
	node *Node
	// owner is the test that the DaemonSet belongs to; pod is its pod, nil before it runs.
	owner testing.TB
	pod   *corev1.Pod
}

// Cgroups returns access to cgroups for the duration of the test. The DaemonSet is started at once for a virtual machine, otherwise with the first
// write.
func (n *Node) Cgroups(t testing.TB) *Cgroups {
	t.Helper()

	c := &Cgroups{node: n, owner: t}
	if n.Machine() {
		c.startDaemonSet(t)
	}

	return c
}

func (c *Cgroups) startDaemonSet(t testing.TB) {
	t.Helper()

	n := c.node
	labels := map[string]string{"app": "cgroups-" + n.Name()}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: labels["app"], Namespace: metav1.NamespaceSystem},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector:                  map[string]string{corev1.LabelHostname: n.Name()},
					HostPID:                       true,
					HostNetwork:                   true,
					TerminationGracePeriodSeconds: new(int64(1)),
					Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					PriorityClassName:             "system-node-critical",
					Containers: []corev1.Container{{
						Name: "main", Image: Image("cgroups"), Args: []string{"stay"}, ImagePullPolicy: corev1.PullNever,
						SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
						VolumeMounts: []corev1.VolumeMount{
							{Name: "cgroup", MountPath: hostCgroups}, {Name: "run", MountPath: "/host/run/containerd"},
						},
					}},
					Volumes: []corev1.Volume{hostPath("cgroup", "/sys/fs/cgroup"), hostPath("run", "/run/containerd")},
				},
			},
		},
	}

	sets := n.Client.AppsV1().DaemonSets(set.Namespace)
	if _, err := sets.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating DaemonSet: %v", err)
	}

	c.owner.Cleanup(func() {
		ctx := context.WithoutCancel(c.owner.Context())
		if err := sets.Delete(ctx, set.Name, metav1.DeleteOptions{}); err != nil {
			c.owner.Errorf("deleting DaemonSet: %v", err)
		}
	})

	n.Eventually(t, "pod of the DaemonSet", func() error { return c.findPod(t) })
}

// findPod finds the current pod of the DaemonSet, which replaces a pod that ended.
func (c *Cgroups) findPod(t testing.TB) error {
	t.Helper()

	pods, err := c.node.Client.CoreV1().Pods(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "app=cgroups-" + c.node.Name()})
	if err != nil {
		return err
	}

	if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning || pods.Items[0].DeletionTimestamp != nil {
		return fmt.Errorf("%d pods, want one that runs: %+v", len(pods.Items), pods.Items)
	}

	if c.pod != nil && c.pod.UID != pods.Items[0].UID {
		t.Logf("pod %s of the DaemonSet was replaced by %s", c.pod.Name, pods.Items[0].Name)
	}

	c.pod = &pods.Items[0]
	return nil
}

func hostPath(name, path string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}
}

// Dir returns the directory of a cgroup below kubepods as seen by the DaemonSet's pod. The controller matters on version 1 only.
func (c *Cgroups) Dir(controller string, parts ...string) string {
	dir := hostCgroups
	if c.node.Cgroup() == 1 {
		dir += "/" + controller
	}

	names := append([]string{"kubepods"}, parts...)
	prefix := map[string]string{realnode.Containerd: "cri-containerd-", realnode.CRIO: "crio-"}[c.node.Runtime()]
	switch last := len(names) - 1; {
	case c.node.Systemd():
		names = systemdNames(names, prefix)
	case c.node.Runtime() == realnode.CRIO && len(names[last]) == containerIDLength:
		names[last] = prefix + names[last]
	}

	return strings.Join(append([]string{dir}, names...), "/")
}

// systemdNames converts group names to those of systemd, with the runtime's prefix for containers. A slice's name includes those of its
// parents, separated by dashes; dashes in pod UIDs become underscores.
func systemdNames(parts []string, prefix string) []string {
	names := make([]string, len(parts))
	stem := ""
	for i, part := range parts {
		switch {
		case i == 0:
			stem = part
		case len(part) == containerIDLength:
			names[i] = prefix + part + ".scope"
			continue
		default:
			stem += "-" + strings.ReplaceAll(part, "-", "_")
		}

		names[i] = stem + ".slice"
	}

	return names
}

// containerIDLength is the length of container IDs of containerd and CRI-O.
const containerIDLength = 64

// podParts returns the directories of a pod below kubepods with the cgroupfs driver.
func podParts(pod *corev1.Pod) []string {
	id := "pod" + string(pod.UID)
	switch pod.Status.QOSClass {
	case corev1.PodQOSBestEffort:
		return []string{"besteffort", id}
	case corev1.PodQOSBurstable:
		return []string{"burstable", id}
	}

	return []string{id}
}

// containerParts returns those of its first container.
func containerParts(pod *corev1.Pod) []string {
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	return append(podParts(pod), id)
}

// Group returns the cgroup of the pod's first container below the root of a hierarchy.
func Group(pod *corev1.Pod) string {
	return strings.Join(append([]string{"kubepods"}, containerParts(pod)...), "/")
}

// Read returns the content of a file without the final newline.
func (c *Cgroups) Read(t testing.TB, file string) (string, error) {
	t.Helper()
	out, err := c.readFiles(t, file)
	return strings.TrimSuffix(out, "\n"), err
}

// readFiles returns the concatenated contents of files.
func (c *Cgroups) readFiles(t testing.TB, files ...string) (string, error) {
	t.Helper()

	if c.node.Machine() {
		return c.exec(t, append([]string{"read"}, files...)...)
	}

	var out strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(c.node.Path("/sys/fs/cgroup" + strings.TrimPrefix(file, hostCgroups)))
		if err != nil {
			return "", err
		}

		out.Write(content)
	}

	return out.String(), nil
}

// exec runs the program cgroups in the DaemonSet's pod. After a failure it looks for a replaced pod.
func (c *Cgroups) exec(t testing.TB, args ...string) (string, error) {
	t.Helper()

	if c.pod == nil {
		c.startDaemonSet(t)
	}

	out, err := c.node.Exec(t, c.pod, append([]string{"/nodekit", "cgroups"}, args...)...)
	if err != nil {
		return "", errors.Join(err, c.findPod(t))
	}

	return out, nil
}

// Write writes a value to a file.
func (c *Cgroups) Write(t testing.TB, file, value string) error {
	t.Helper()
	_, err := c.exec(t, "write", file, value)
	return err
}

// Limits holds the limits of a cgroup.
type Limits struct {
	// Cores of CPU time, +Inf for no limit.
	Cores float64
	// Memory in bytes, math.MaxInt64 for no limit.
	Memory int64
	// CPUs is the CPU list as formatted by the kernel.
	CPUs string
}

// PodLimits returns the limits of the pod's own cgroup.
func (c *Cgroups) PodLimits(t testing.TB, pod *corev1.Pod) (Limits, error) {
	t.Helper()
	return c.limits(t, podParts(pod))
}

// ContainerLimits returns the limits of the pod's first container.
func (c *Cgroups) ContainerLimits(t testing.TB, pod *corev1.Pod) (Limits, error) {
	t.Helper()
	return c.limits(t, containerParts(pod))
}

func (c *Cgroups) limits(t testing.TB, parts []string) (Limits, error) {
	t.Helper()

	file := func(controller, name string) string { return c.Dir(controller, parts...) + "/" + name }
	if c.node.Cgroup() == 1 {
		out, err := c.readFiles(t, file("cpu", "cpu.cfs_quota_us"), file("cpu", "cpu.cfs_period_us"), file("memory", "memory.limit_in_bytes"),
			file("cpuset", "cpuset.cpus"))
		if err != nil {
			return Limits{}, err
		}

		lines := strings.Split(out, "\n")
		return parseLimits(lines[0], lines[1], lines[2], lines[3])
	}

	out, err := c.readFiles(t, file("", "cpu.max"), file("", "memory.max"), file("", "cpuset.cpus.effective"))
	if err != nil {
		return Limits{}, err
	}

	lines := strings.Split(out, "\n")
	quota, period, _ := strings.Cut(lines[0], " ")
	return parseLimits(quota, period, lines[1], lines[2])
}

// unlimitedV1 is above any real memory size; version 1 shows the largest multiple of a page for no limit.
const unlimitedV1 = 1 << 60

func parseLimits(quota, period, memory, cpus string) (Limits, error) {
	l := Limits{Cores: math.Inf(1), Memory: math.MaxInt64, CPUs: cpus}
	if quota != "max" && quota != "-1" {
		q, err1 := strconv.ParseFloat(quota, 64)
		p, err2 := strconv.ParseFloat(period, 64)
		if err1 != nil || err2 != nil || p <= 0 {
			return l, fmt.Errorf("quota %q of period %q is none", quota, period)
		}

		l.Cores = q / p
	}

	if memory != "max" {
		m, err := strconv.ParseInt(memory, 10, 64)
		if err != nil {
			return l, fmt.Errorf("memory limit: %w", err)
		}

		if m < unlimitedV1 {
			l.Memory = m
		}
	}

	return l, nil
}

// Throttled returns the number of periods in which the pod's first container exhausted its quota.
func (c *Cgroups) Throttled(t testing.TB, pod *corev1.Pod) (int64, error) {
	t.Helper()

	stat, err := c.Read(t, c.Dir("cpu", containerParts(pod)...)+"/cpu.stat")
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(stat) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "nr_throttled "); ok {
			return strconv.ParseInt(value, 10, 64)
		}
	}

	return 0, fmt.Errorf("no nr_throttled in %q", stat)
}
