// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
)

// TestOlderVersions applies the chart, as rendered for each older Kubernetes version that it accepts, to an API server that emulates the
// version: every kind has to be served, every policy's expression has to compile, and no object may be of an API that the version lacks.
func TestOlderVersions(t *testing.T) {
	for _, version := range []string{"1.33", "1.34", "1.35"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			f := newFixtureWith(t, controlplane.Options{ExtraArgs: map[controlplane.Component][]string{
				controlplane.APIServer: {"--emulated-version=" + version},
			}})

			server, err := discovery.NewDiscoveryClientForConfig(f.control.Config())
			if err != nil {
				t.Fatal(err)
			}

			info, err := server.ServerVersion()
			if err != nil || info.EmulationMajor+"."+info.EmulationMinor != version {
				t.Fatalf("the API server emulates %+v, %v, want %s", info, err, version)
			}

			// From 1.36 on: the API server does emulate the older version.
			if served, err := discovery.IsResourceEnabled(server, schema.GroupVersionResource{
				Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies",
			}); served || err != nil {
				t.Fatalf("MutatingAdmissionPolicy is served: %v", err)
			}

			applier, err := manifest.NewApplier(f.control.Config(), "versions")
			if err != nil {
				t.Fatal(err)
			}

			objects := render(t, "--values", chart+"/values-full.yaml", "--kube-version", version, "--set", "namespace.create=true")
			if err := applier.Apply(t.Context(), objects...); err != nil {
				t.Fatal(err)
			}
		})
	}
}
