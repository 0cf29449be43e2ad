// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/internal/testbed/realnode/assets"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/test/e2e/node"
)

// narrow checks that the agent's permissions cover the kubelet's configuration and nothing else of its API, directly or through the API
// server.
func (f fixture) narrow(t testing.TB) {
	t.Helper()

	config, err := node.Open(t).Control().ConfigFor(t.Context(), controlplane.ServiceAccount("crane-system", command))
	if err != nil {
		t.Fatal(err)
	}

	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}

	n, err := f.Client.CoreV1().Nodes().Get(t.Context(), f.Name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	kubelet := fmt.Sprintf("https://%s:%d", n.Status.Addresses[0].Address, n.Status.DaemonEndpoints.KubeletEndpoint.Port)
	for url, want := range map[string]int{
		kubelet + "/configz": http.StatusOK, kubelet + "/pods": http.StatusForbidden, kubelet + "/metrics": http.StatusForbidden,
		config.Host + "/api/v1/nodes/" + f.Name() + "/proxy/configz": http.StatusForbidden,
	} {
		reply, err := client.Get(url)
		if err != nil {
			t.Error(err)
			continue
		}

		reply.Body.Close()
		if reply.StatusCode != want {
			t.Errorf("%s: %s, want %d", url, reply.Status, want)
		}
	}
}

// TestTheKubeletAssigns checks that a kubelet with the static policy assigns the CPU and the agent reports why it does not.
func TestTheKubeletAssigns(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU cannot be had alone")
	}

	f := newFixture(t, node.Options{CPUManagerPolicy: realnode.CPUManagerStatic, ReservedCPUs: "0"})
	set := f.daemonSet(t, cpuManager()...)

	// The pod needs all remaining CPU.
	delete(set.Spec.Template.Spec.Containers[0].Resources.Requests, corev1.ResourceCPU)
	d := f.deploySet(t, set)

	f.Eventually(t, "the agent stands aside", func() error {
		nrt, err := f.topology(t)
		if err != nil {
			return err
		}

		log, err := f.Logs(t, d.pod)
		if err == nil && !strings.Contains(log, "assigning no CPUs: the kubelet assigns CPUs itself (policy static, by the kubelet (/configz))") {
			err = errors.New("the agent does not say so")
		}
		if nrt.CraneManagerPolicy.CPUManagerPolicy != topologyv1alpha1.CPUManagerPolicyNone {
			err = errors.Join(err, fmt.Errorf("%+v", nrt))
		}

		return err
	})

	f.Eventually(t, "a look asks the kubelet as well", func() error {
		out, err := f.Exec(t, d.pod, assets.CommandPath, "--dry-run", "--once", "--host-root=/host")
		if err == nil && !strings.Contains(out, "Usable is the part the kubelet leaves to pods, according to the kubelet (/configz); reserved CPUs: 0") {
			err = errors.New(out)
		}

		return err
	})

	f.narrow(t)
	pod := f.Run(t, f.pinned("pinned", "1"))

	// Not exclusively: a kubelet lets sandboxes run everywhere.
	cgroups := f.Cgroups(t)
	f.Eventually(t, "the kubelet has given it a CPU", func() error {
		limits, err := cgroups.ContainerLimits(t, pod)
		if set, invalid := numa.ParseCPUSet(limits.CPUs); err == nil && (invalid != nil || set.Len() != 1) {
			err = fmt.Errorf("it runs on %q", limits.CPUs)
		}

		return err
	})

	before := f.Settings(t)
	d.remove(t)
	f.awaitAsBefore(t, before)
}
