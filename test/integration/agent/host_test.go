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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/test/hostrecording"
	"crane.io/crane/test/integration/harness"
)

// hostMemory is the memory of the recorded host in MiB.
const hostMemory = 16000

// hostFixture holds the files of a node with pods of the API server. It acts as the kubelet: pods run when created and end on request.
type hostFixture struct {
	dir string
	t   *testing.T
	c   client.Client
}

// The recorded pod that others are copied from, and its container.
const (
	templatePod       = "c2b9f6a0_7f43_4f0e_bb65_1f0f2a9d8e03"
	templateContainer = "044b5c6d7e8f90a1044b5c6d7e8f90a1044b5c6d7e8f90a1044b5c6d7e8f90a1"
)

// newHostFixture returns a host without pods and the given use in MiB.
func newHostFixture(t *testing.T, c client.Client, used int) *hostFixture {
	t.Helper()

	f := &hostFixture{dir: t.TempDir(), t: t, c: c}
	for path, content := range recording(t) {
		if !strings.Contains(path, "-pod") {
			f.write(path, content)
		}
	}

	f.write("proc/meminfo", meminfo(used))
	return f
}

func recording(t *testing.T) map[string]string {
	t.Helper()

	r, err := hostrecording.Recorded("v2-systemd-containerd")
	if err != nil {
		t.Fatal(err)
	}

	return r.Moments[0].Files
}

func (f *hostFixture) write(path, content string) {
	f.t.Helper()
	writeFile(f.t, filepath.Join(f.dir, path), content)
}

// writeFile writes a file and creates its directory.
func writeFile(t *testing.T, file, content string) {
	t.Helper()

	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// uses sets the memory in use in MiB by a single write of constant length, so that no reader sees a partial file.
func (f *hostFixture) uses(mib int) {
	f.t.Helper()

	file, err := os.OpenFile(filepath.Join(f.dir, "proc/meminfo"), os.O_WRONLY, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()

	if _, err := file.WriteAt([]byte(meminfo(mib)), 0); err != nil {
		f.t.Fatal(err)
	}
}

func meminfo(used int) string {
	return fmt.Sprintf("MemTotal: %8d kB\nMemFree: %8[2]d kB\nMemAvailable: %8[2]d kB\nBuffers: 0 kB\nCached: 0 kB\n", hostMemory*1024, (hostMemory-used)*1024)
}

// run creates a pod in the API server that uses the given MiB on the host. Its UID is the API server's or, for mirror pods, the kubelet's.
func (f *hostFixture) run(node string, pod *corev1.Pod, mib int) {
	f.t.Helper()

	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "crane.local/nothing:1"}}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	harness.Create(f.t, f.c, pod)
	f.t.Cleanup(func() { f.forget(pod) })

	uid := string(pod.UID)
	if hash := pod.Annotations["kubernetes.io/config.hash"]; hash != "" {
		uid = hash
	}

	container := fmt.Sprintf("%064s", strings.ReplaceAll(uid, "-", ""))
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBestEffort,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + container, Ready: true}},
	}

	if err := f.c.Status().Update(f.t.Context(), pod); err != nil {
		f.t.Fatal(err)
	}

	for path, content := range recording(f.t) {
		if !strings.Contains(path, templatePod) {
			continue
		}

		switch filepath.Base(path) {
		case "memory.current":
			content = fmt.Sprintln(mib << 20)
		case "memory.stat":
			content = fmt.Sprintf("anon %d\nfile 0\ninactive_file 0\n", mib<<20)
		}

		path = strings.ReplaceAll(path, templatePod, strings.ReplaceAll(uid, "-", "_"))
		f.write(strings.ReplaceAll(path, templateContainer, container), content)
	}
}

// forget deletes a pod as a kubelet does at its end.
func (f *hostFixture) forget(pod *corev1.Pod) {
	f.t.Helper()

	ctx := context.WithoutCancel(f.t.Context())
	if err := f.c.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		f.t.Error(err)
	}
}

// end ends a pod: its cgroup and then the object. Its memory must be freed before, or the agent would evict another one.
func (f *hostFixture) end(pod *corev1.Pod) {
	f.t.Helper()

	dir := filepath.Join(f.dir, "sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice", "kubepods-besteffort-pod"+strings.ReplaceAll(string(pod.UID), "-", "_")+".slice")
	if _, err := os.Stat(dir); err != nil {
		f.t.Fatal(err)
	}

	if err := os.RemoveAll(dir); err != nil {
		f.t.Fatal(err)
	}

	f.forget(pod)
}

// namespace creates a namespace with the account that pods need.
func namespace(t *testing.T, c client.Client, name string) string {
	t.Helper()

	harness.Create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
	harness.Create(t, c, account)

	return name
}

// newPod returns a pod with the label "batch" that rules may select.
func newPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"batch": namespace}}}
}

// ending returns the terminating pods of a namespace.
func ending(ctx context.Context, c client.Client, namespace string) (out []string, err error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, err
	}

	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp != nil {
			out = append(out, pods.Items[i].Name)
		}
	}

	return out, nil
}

// awaitEvent waits for an event on an object with all of the words in its message.
func awaitEvent(t *testing.T, c client.Client, kind, name, reason string, words ...string) {
	t.Helper()

	eventually(t, fmt.Sprintf("event %s on %s %s with %q", reason, kind, name, words), func(ctx context.Context) error {
		var list corev1.EventList
		if err := c.List(ctx, &list); err != nil {
			return err
		}

		var seen []string
		for i := range list.Items {
			e := &list.Items[i]
			if e.InvolvedObject.Kind != kind || e.InvolvedObject.Name != name {
				continue
			}

			seen = append(seen, e.Reason+": "+e.Message)
			if e.Reason == reason && containsAll(e.Message, words) && e.Source.Component == "crane-agent" {
				return nil
			}
		}

		return errors.New("there are " + strings.Join(seen, "\n"))
	})
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}

	return true
}
