// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestWebhookReplicasAreReady checks that the Service of the webhooks contains ready replicas only, that readiness does not depend on the
// data source, and that a replica has time to stop after the API server no longer calls it.
func TestWebhookReplicasAreReady(t *testing.T) {
	service := &corev1.Service{}
	craned := &appsv1.Deployment{}
	for path, object := range map[string]any{"webhook/service.yaml": service, "craned/deployment.yaml": craned} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		if err := yaml.UnmarshalStrict(data, object); err != nil {
			t.Fatalf("decoding %s: %v", path, err)
		}
	}

	if service.Spec.PublishNotReadyAddresses {
		t.Error("the Service publishes replicas that are not ready: half of the requests time out while a node is down")
	}

	container := craned.Spec.Template.Spec.Containers[0]
	if path := container.ReadinessProbe.HTTPGet.Path; path != "/readyz?exclude=data-source" {
		t.Errorf("the readiness probe is %s", path)
	}
	if !slices.Contains(container.Args, "--shutdown-delay-duration=5s") {
		t.Errorf("no delay of the shutdown in %v", container.Args)
	}
	if grace := *craned.Spec.Template.Spec.TerminationGracePeriodSeconds; grace < 5+20 {
		t.Errorf("a grace period of %d s is shorter than the delay and --shutdown-timeout", grace)
	}
}

// TestRunQueueWait: with the component the agent's pods are in the host's PID namespace, and nothing else is another.
func TestRunQueueWait(t *testing.T) {
	plain := renderAgent(t, "")
	with := renderAgent(t, "run-queue-wait")
	if plain.Spec.Template.Spec.HostPID || !with.Spec.Template.Spec.HostPID {
		t.Errorf("hostPID is %t without, %t with the component", plain.Spec.Template.Spec.HostPID, with.Spec.Template.Spec.HostPID)
	}

	with.Spec.Template.Spec.HostPID = false
	if diff := cmp.Diff(plain, with); diff != "" {
		t.Errorf("the component changes more (-without +with):\n%s", diff)
	}
}

// renderAgent returns the agent's DaemonSet with a component; empty for none.
func renderAgent(t *testing.T, component string) *appsv1.DaemonSet {
	t.Helper()

	kubectl, err := exec.LookPath(filepath.Join("..", "bin", "kubectl"))
	if err != nil {
		if kubectl, err = exec.LookPath("kubectl"); err != nil {
			t.Skipf("no kubectl: %v (make tools builds it)", err)
		}
	}

	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	up, err := filepath.Rel(dir, here)
	if err != nil {
		t.Fatal(err)
	}

	manifest, err := os.ReadFile("crane-agent/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}

	content := "resources: [daemonset.yaml]\n"
	if component != "" {
		content += "components: [" + filepath.Join(up, "components", component) + "]\n"
	}

	for name, text := range map[string][]byte{"daemonset.yaml": manifest, "kustomization.yaml": []byte(content)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v: %s", dir, err, out)
	}

	set := &appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict(out, set); err != nil {
		t.Fatalf("decoding the DaemonSet: %v: %s", err, out)
	}

	return set
}

// TestAgentSeesNoSecretsOfTheNode checks that of the kubelet's directory, which has credentials of registries, a kubeconfig, keys, checkpoints and
// the volumes of all pods, the agent sees the socket of pod resources alone.
func TestAgentSeesNoSecretsOfTheNode(t *testing.T) {
	mounts := func(component string) map[string]string {
		set := renderAgent(t, component)
		paths := map[string]string{}
		for _, v := range set.Spec.Template.Spec.Volumes {
			if v.HostPath != nil {
				paths[v.Name] = v.HostPath.Path
			}
		}

		out := map[string]string{}
		for _, m := range set.Spec.Template.Spec.Containers[0].VolumeMounts {
			const kubelet = "/var/lib/kubelet"
			dir, ok := strings.CutPrefix(paths[m.Name], kubelet)
			_, isAbove := strings.CutPrefix(kubelet, paths[m.Name])
			if !ok && isAbove && paths[m.Name] != "" {
				t.Errorf("volume %s shows %s, want no directory above the kubelet's", m.Name, paths[m.Name])
			}
			if !ok {
				continue
			}

			if !m.ReadOnly {
				t.Errorf("mount %s is writable, want it read-only", m.MountPath)
			}

			out[dir] = filepath.Join(paths[m.Name], m.SubPath)
		}

		return out
	}

	want := map[string]string{"/pod-resources": "/var/lib/kubelet/pod-resources"}

	if diff := cmp.Diff(want, mounts("")); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}

	want["/pki"] = "/var/lib/kubelet/pki"
	if diff := cmp.Diff(want, mounts("kubelet-certificate")); diff != "" {
		t.Errorf("mounts with the component (-want +got):\n%s", diff)
	}
}
