// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// chartServers is the list of known servers that the chart's templates read.
const chartServers = "../../../charts/crane/files/prometheus-servers.yaml"

// TestChartKnowsTheSameServers compares the servers that the chart finds with those of this package. CRANE_UPDATE_DOCS=1 writes the file.
func TestChartKnowsTheSameServers(t *testing.T) {
	type server struct {
		Server string            `json:"server"`
		Labels map[string]string `json:"labels,omitempty"`
		Names  []string          `json:"names,omitempty"`
		Ports  []string          `json:"ports"`
		Path   string            `json:"path,omitempty"`
	}

	var servers []server
	for _, k := range serverKinds() {
		servers = append(servers, server{Server: k.server, Labels: k.labels, Names: k.names, Ports: k.ports, Path: k.path})
	}

	content, err := yaml.Marshal(servers)
	if err != nil {
		t.Fatal(err)
	}

	want := "# Copyright The Crane Authors.\n# SPDX-License-Identifier: Apache-2.0\n#\n" +
		"# Services that serve the Prometheus API, the preferred first. `make generate` writes this file; do not edit it.\n" + string(content)

	if os.Getenv("CRANE_UPDATE_DOCS") != "" {
		if err := os.WriteFile(chartServers, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	have, err := os.ReadFile(chartServers)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Errorf("%s is outdated, want it as make generate writes it (-want +have):\n%s", chartServers, diff)
	}
}
