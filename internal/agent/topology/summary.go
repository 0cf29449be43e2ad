// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/series"
)

// Summary is a machine's topology for tables and JSON output.
type Summary struct {
	Zones []ZoneSummary `json:"zones"`
	// KubeletSource describes the source of the kubelet's configuration; empty if unknown, as are the reservations then.
	KubeletSource string `json:"kubeletSource,omitempty"`
	// KubeletAssignsCPUs means that the kubelet's CPU manager policy is static.
	KubeletAssignsCPUs bool `json:"kubeletAssignsCpus,omitempty"`
	// ReservedCPUs lists the CPUs that are not assigned to containers.
	ReservedCPUs string   `json:"reservedCpus,omitempty"`
	Problems     []string `json:"problems,omitempty"`
}

// ZoneSummary is a zone of a Summary.
type ZoneSummary struct {
	Name string `json:"name"`
	// CPUs lists the online CPUs; Cores is the number of their physical cores.
	CPUs  string `json:"cpus"`
	Cores int    `json:"cores"`
	// UsableCPU and UsableMemory are allocatable to pods, in cores and bytes; nil if the reservations are unknown.
	UsableCPU    *float64     `json:"usableCpu,omitempty"`
	Memory       series.Bytes `json:"memory"`
	UsableMemory *int64       `json:"usableMemory,omitempty"`
	Distances    []int        `json:"distances,omitempty"`
}

// Summarize reads the topology of a node, which is nil if unknown. Unknown parts are reported as problems.
func Summarize(ctx context.Context, root host.Root, kubelet *KubeletReader, node *corev1.Node) Summary {
	machine, err := ReadMachine(root)
	if err != nil {
		return Summary{Zones: []ZoneSummary{}, Problems: []string{fmt.Sprintf("the CPUs are unknown: %v", err)}}
	}
	out := Summary{Zones: make([]ZoneSummary, len(machine.Zones))}
	k, readErr := kubelet.Read(ctx, node)
	f := newNodeTopology(machine, k, node)
	if readErr == nil {
		out.KubeletSource, out.KubeletAssignsCPUs = k.Source, k.Static
		if reserved, err := f.ReservedCPUs(); err == nil {
			out.ReservedCPUs = reserved.String()
		}
		out.Problems = f.Problems()
		if queryErr := kubelet.LastError(); queryErr != nil {
			out.Problems = append(out.Problems, fmt.Sprintf("the kubelet did not return its configuration; its file is used, which lacks flags and drop-in files: %v", queryErr))
		}
	} else {
		// Allocatable amounts are meaningless while the reservations are unknown.
		out.Problems = append(slices.Clone(machine.Problems), readErr.Error())
	}
	object := f.Build()
	for i := range machine.Zones {
		z := &machine.Zones[i]
		out.Zones[i] = ZoneSummary{Name: z.Name(), CPUs: z.CPUs.String(), Cores: machine.Cores(z.CPUs), Memory: z.Memory}
		for _, id := range slices.Sorted(maps.Keys(z.Distances)) {
			out.Zones[i].Distances = append(out.Zones[i].Distances, z.Distances[id])
		}
		if readErr == nil {
			usable := object.Zones[i].Resources.Allocatable
			out.Zones[i].UsableCPU = new(float64(usable.Cpu().MilliValue()) / 1000)
			out.Zones[i].UsableMemory = new(usable.Memory().Value())
		}
	}
	return out
}

// Rows returns the zones as table cells: name, CPUs, cores, usable cores, memory and usable memory in MiB, distances.
func (s *Summary) Rows() [][7]string {
	out := make([][7]string, len(s.Zones))
	for i, z := range s.Zones {
		const notKnown = "unknown"
		row := [7]string{z.Name, z.CPUs, strconv.Itoa(z.Cores), notKnown, formatMiB(int64(z.Memory)), notKnown, ""}
		if z.UsableCPU != nil {
			row[3] = strconv.FormatFloat(*z.UsableCPU, 'f', -1, 64)
		}
		if z.UsableMemory != nil {
			row[5] = formatMiB(*z.UsableMemory)
		}
		for k, d := range z.Distances {
			if k > 0 {
				row[6] += " "
			}
			row[6] += strconv.Itoa(d)
		}
		out[i] = row
	}
	return out
}

func formatMiB(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }
