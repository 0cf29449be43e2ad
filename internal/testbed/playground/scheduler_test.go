// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"os"
	"strings"
	"testing"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
)

// TestSchedulerConfiguration: values that differ from those in a pod are replaced, and no path of a pod is left.
func TestSchedulerConfiguration(t *testing.T) {
	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		t.Fatal(err)
	}

	p := &playground{dir: t.TempDir(), explainAddress: "127.0.0.1:4711"}
	policy, err := writePolicy(p.dir, objects)
	if err != nil {
		t.Fatal(err)
	}

	path, err := writeSchedulerConfig(p.dir, deployment{objects: objects, kubeconfig: "/k/config"}, policy, p.explainAddress)
	if err != nil {
		t.Fatal(err)
	}

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"kubeconfig: /k/config", "policyConfigPath: " + policy, "explainAddress: 127.0.0.1:4711", "schedulerName: crane-scheduler", "resourceName: crane-scheduler"} {
		if !strings.Contains(string(content), want) {
			t.Errorf("writeSchedulerConfig: %q is missing, want it in\n%s", want, content)
		}
	}

	if strings.Contains(string(content), "/etc/") {
		t.Errorf("writeSchedulerConfig: got a path of a pod, want none below /etc/ in\n%s", content)
	}

	d, err := findDeployment(objects, componentCraneScheduler)
	if err != nil || d.serviceAccount != "crane-scheduler" {
		t.Errorf("findDeployment(%s) = %+v, error %v; want service account crane-scheduler", componentCraneScheduler, d, err)
	}

	// A demo replaces the policy; a restart of the scheduler does not restore the original one.
	if err := (executor{p}).Policy(t.Context(), "changed"); err != nil {
		t.Fatal(err)
	}

	if _, err := writePolicy(p.dir, objects); err != nil {
		t.Fatal(err)
	}

	if got, err := os.ReadFile(policy); err != nil || string(got) != "changed" {
		t.Errorf("policy after a restart = %q, error %v; want %q as the demo wrote it", got, err, "changed")
	}
}
