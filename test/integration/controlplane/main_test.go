// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane_test tests a real control plane: that it serves, what it rejects, and that nothing of it is left
// behind.
package controlplane_test

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/controlplanetest"
)

// shared is the control plane of tests that neither stop nor break it.
var shared *controlplane.ControlPlane

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		os.Exit(runParent())
	}

	os.Exit(controlplanetest.ForMain(m, controlplane.Options{
		Components: []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler},
		ExtraArgs: map[controlplane.Component][]string{
			controlplane.ControllerManager: {"--horizontal-pod-autoscaler-sync-period=1s"},
		},
		Log: os.Stderr,
	}, func(c *controlplane.ControlPlane) { shared = c }))
}

func TestReadyz(t *testing.T) {
	client, err := kubernetes.NewForConfig(shared.Config())
	if err != nil {
		t.Fatal(err)
	}

	body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
	if err != nil || string(body) != "ok" {
		t.Fatalf("/readyz = %q, %v, want ok", body, err)
	}

	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}

	if version.GitVersion != "v1.36.3" {
		t.Errorf("version %s, want v1.36.3", version.GitVersion)
	}
}
