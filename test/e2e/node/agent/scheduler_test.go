// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/process"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/test/e2e/node"
)

const (
	scheduler = "crane-scheduler"
	// stopBound bounds the end of a scheduler.
	stopBound = 30 * time.Second
)

// configMap returns a value of a ConfigMap of config.
func configMap(t testing.TB, dir, name, key string) string {
	t.Helper()

	objects, err := manifest.ReadDir(config.Manifests, dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, o := range objects {
		if value, found, err := unstructured.NestedString(o.Object, "data", key); o.GetKind() == "ConfigMap" && o.GetName() == name && found && err == nil {
			return value
		}
	}

	t.Fatalf("config/%s has no ConfigMap %s with %s, want one", dir, name, key)
	return ""
}

// schedule runs crane-scheduler beside the cluster's own with the configuration of config/crane-scheduler and the permissions of
// config/rbac. Zones are filtered first, so that a waiting pod reports them even on a full node.
func (f fixture) schedule(t testing.TB) {
	t.Helper()

	binary := node.Binary(t, scheduler)
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	file := filepath.Join(dir, "config.yaml")

	kubeconfig, err := node.Open(t).Control().KubeconfigFor(t.Context(), scheduler, controlplane.ServiceAccount("crane-system", scheduler))
	if err != nil {
		t.Fatal(err)
	}

	var c map[string]any
	if err := yaml.Unmarshal([]byte(configMap(t, scheduler, scheduler, "config.yaml")), &c); err != nil {
		t.Fatal(err)
	}

	first := c["profiles"].([]any)[0].(map[string]any)
	first["plugins"].(map[string]any)["filter"] = map[string]any{"enabled": []any{map[string]any{"name": "NodeResourceTopologyMatch"}}}
	first["pluginConfig"].([]any)[0].(map[string]any)["args"] = map[string]any{"policyConfigPath": policy}
	c["leaderElection"] = map[string]any{"leaderElect": false}
	c["clientConnection"].(map[string]any)["kubeconfig"] = kubeconfig

	content, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}

	for name, text := range map[string]string{file: string(content), policy: configMap(t, "nodeload", "crane-node-load-policy", "policy.yaml")} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	p, err := process.Start(process.Spec{Name: scheduler, Path: binary, LastLines: 40, Args: []string{
		"--config=" + file, "--bind-address=127.0.0.1", "--secure-port=0", "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
	}})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last lines of %s:\n%s", scheduler, strings.Join(p.LastLines(), "\n"))
		}

		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), stopBound)
		defer cancel()

		if err := p.Stop(ctx); err != nil {
			t.Errorf("stopping %s: %v", scheduler, err)
		}
	})
}

// whole returns a pod for crane-scheduler with the given CPUs of one zone.
func (f fixture) whole(name string, cpus int) *corev1.Pod {
	list := node.Resources(fmt.Sprint(cpus), "64Mi")
	pod := f.Pod(name, "cpu-hog", []string{"-threads", "1"}, list, list)
	pod.Spec.NodeName = ""
	pod.Spec.SchedulerName = scheduler
	pod.Annotations = map[string]string{topologyv1alpha1.AnnotationPodTopologyAwareness: "true"}

	return pod
}

// cpus returns the CPUs from first to last.
func cpus(first, last int) numa.CPUSet {
	var list []int
	for c := first; c <= last; c++ {
		list = append(list, c)
	}

	return numa.NewCPUSet(list...)
}

// keptMemory is the memory reserved by the kubelet: 64 MiB for the system and the eviction threshold of 100 MiB.
const keptMemory = 164 << 20

// awaitZones waits until the NodeResourceTopology has the reserved CPUs, the usable CPUs of each zone and the reserved memory of one zone, and
// the zones' memory adds up to the node's.
func (f fixture) awaitZones(t testing.TB, reserved numa.CPUSet, keeps int, usable ...int) {
	t.Helper()

	f.Eventually(t, "the zones of the node", func() error {
		nrt, err := f.topology(t)
		if err != nil {
			return err
		}

		n, err := f.Client.CoreV1().Nodes().Get(t.Context(), f.Name(), metav1.GetOptions{})
		if err != nil {
			return err
		}

		left := n.Status.Allocatable.Memory().Value()
		for i := range nrt.Zones {
			r := nrt.Zones[i].Resources
			kept := r.Capacity.Memory().Value() - r.Allocatable.Memory().Value()
			left -= r.Allocatable.Memory().Value()

			if kept != 0 && i != keeps || kept != keptMemory && i == keeps {
				return fmt.Errorf("%d bytes are kept of zone %d, want %d of zone %d", kept, i, keptMemory, keeps)
			}
		}

		// The node's memory is divided in whole KiB.
		if left < 0 || left >= int64(len(nrt.Zones))<<10 {
			return fmt.Errorf("the node has %d bytes more for pods than its zones", left)
		}

		kept := nrt.Reserved[corev1.ResourceMemory]
		if len(nrt.Zones) != len(usable) || nrt.Attributes[topologyv1alpha1.AttributeReservedSystemCPUs] != reserved.String() || kept.String() != "64Mi" {
			return fmt.Errorf("%+v", nrt)
		}

		for i, want := range usable {
			if got := nrt.Zones[i].Resources.Allocatable.Cpu().Value(); got != int64(want) {
				return fmt.Errorf("zone %s has %d CPUs, want %d", nrt.Zones[i].Name, got, want)
			}
		}

		return nil
	})
}

// TestSchedulerAndAgent checks that the agent publishes the zones with the reservations of a drop-in file, a flag and the eviction
// threshold, read from a kubelet with a self-signed certificate; that the scheduler chooses a zone and the agent assigns exclusive CPUs of
// it; and that a second pod waits for the zone and gets the same CPUs after the first.
func TestSchedulerAndAgent(t *testing.T) {
	all := runtime.NumCPU()
	if all < 2 {
		t.Skip("one CPU cannot be had alone")
	}

	// Zone node1 is reserved, so that one pod fits on the smallest machine and a second does not.
	half := all / 2
	own := cpus(0, half-1)
	reserved := cpus(half, all-1)
	f := newFixture(t, node.Options{NUMAZones: 2, ReservedCPUs: reserved.String(), Reserved: node.Resources("", "64Mi"), SplitConfig: true, OwnCertificate: true, Restart: true})
	f.Run(t, f.Pod("bystander", "pause", nil, nil, nil))
	before := f.Settings(t)
	set := f.daemonSet(t, cpuManager()...)
	agent := &set.Spec.Template.Spec

	// The pod needs all remaining CPU.
	delete(agent.Containers[0].Resources.Requests, corev1.ResourceCPU)

	// As config/components/kubelet-certificate does for kubelets with a self-signed certificate.
	const keys = "kubelet-pki"
	agent.Volumes = append(agent.Volumes, corev1.Volume{
		Name:         keys,
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/pki"}},
	})
	agent.Containers[0].VolumeMounts = append(agent.Containers[0].VolumeMounts, corev1.VolumeMount{
		Name:      keys,
		MountPath: "/host/var/lib/kubelet/pki",
		ReadOnly:  true,
	})
	f.deploySet(t, set)
	f.schedule(t)
	f.awaitZones(t, reserved, 0, half, 0)

	first := f.Run(t, f.whole("first", half))
	if result := first.Annotations[topologyv1alpha1.AnnotationPodTopologyResult]; first.Spec.NodeName != f.Name() ||
		!strings.Contains(result, `"name":"node0"`) || !strings.Contains(result, fmt.Sprintf(`"cpu":"%d"`, half)) || strings.Contains(result, "node1") {
		t.Errorf("the pod is on %s with the zones %s, want %s and node0 alone", first.Spec.NodeName, result, f.Name())
	}
	if got := f.awaitAlone(t, first, half); got != own {
		t.Errorf("it runs on %s, want the zone's CPUs %s", got, own)
	}

	second := f.whole("second", half)
	f.Create(t, second)
	f.Await(t, second, "waits for a zone", func(p *corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return strings.Contains(c.Message, fmt.Sprintf("insufficient resource of NUMA node (no zone has cpu=%d free)", half))
			}
		}

		return false
	})

	f.Delete(t, first)
	second = f.Await(t, second, "is Ready", isReady)
	if got := f.awaitAlone(t, second, half); got != own {
		t.Errorf("it runs on %s, want the zone's CPUs %s", got, own)
	}

	f.Delete(t, second)
	f.awaitAsBefore(t, before)

	// A restarted kubelet may reserve other CPUs and memory of another zone.
	f.reconfigure(t, reserved, own)
	f.awaitZones(t, own, 1, 0, all-half)
}

// reconfigure changes the CPUs reserved by the kubelet, reserves memory of the second zone and restarts it.
func (f fixture) reconfigure(t testing.TB, before, now numa.CPUSet) {
	t.Helper()

	files, err := filepath.Glob(f.Path("/etc/crane/kubelet.d/*.conf"))
	if err != nil || len(files) != 1 {
		t.Fatalf("drop-in files %q, %v, want one", files, err)
	}

	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}

	quoted := func(set numa.CPUSet) string { return fmt.Sprintf(`"reservedSystemCPUs":%q`, set) }
	memory := fmt.Sprintf(`,"memoryManagerPolicy":"Static","reservedMemory":[{"numaNode":1,"limits":{"memory":"%d"}}]`, keptMemory)
	if err := os.WriteFile(files[0], []byte(strings.Replace(string(content), quoted(before), quoted(now)+memory, 1)), 0o600); err != nil {
		t.Fatal(err)
	}

	// A kubelet does not start with the state of another policy.
	if err := os.Remove(f.Path("/var/lib/kubelet/memory_manager_state")); err != nil {
		t.Fatal(err)
	}

	if err := f.Kill("kubelet"); err != nil {
		t.Fatal(err)
	}
}
