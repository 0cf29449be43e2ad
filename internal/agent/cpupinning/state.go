// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"crane.io/crane/internal/agent/durablefile"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/cpumanager"
	"crane.io/crane/pkg/numa"
)

// StateFile is the name of the state file in the kubelet's directory, the same as gocrane's.
const StateFile = "crane_cpu_manager_state"

const (
	// stateVersion is the version of the file format. gocrane's files have a policyName and no version.
	stateVersion = 1
	// maxStateBytes and maxAssignments limit what is read: 4096 containers take less than 1 MiB.
	maxStateBytes  = 4 << 20
	maxAssignments = numa.MaxOwners
)

// stateEntry is an assignment in the file.
type stateEntry struct {
	Pod       string         `json:"pod"`
	Container string         `json:"container"`
	Policy    numa.Policy    `json:"policy"`
	CPUs      string         `json:"cpus,omitempty"`
	Zones     map[string]int `json:"zones,omitempty"`
}

// gocraneState is the file of gocrane's agent: checkpoint V2 of the kubelet of Kubernetes 1.22. Its checksum covers a dump of Go
// structures and is not verified; the assignments are.
type gocraneState struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries"`
}

// parseState reads a state file of this agent or of gocrane's. It rejects duplicate containers and invalid CPU numbers; whether the CPUs
// exist and are free is checked when they are assigned.
func parseState(content []byte) ([]cpumanager.Assignment, error) {
	if len(content) > maxStateBytes {
		return nil, fmt.Errorf("%d bytes, at most %d are allowed", len(content), maxStateBytes)
	}

	var head struct {
		Version    *int    `json:"version"`
		PolicyName *string `json:"policyName"`
	}

	if err := json.Unmarshal(content, &head); err != nil {
		return nil, fmt.Errorf("invalid JSON: %w", err)
	}

	// gocrane's files have a policy name instead of a version.
	var out []cpumanager.Assignment

	var err error
	if head.Version == nil && head.PolicyName != nil {
		out, err = parseGocrane(content)
	} else {
		out, err = parseCurrent(content)
	}

	if err != nil {
		return nil, err
	}

	if len(out) > maxAssignments {
		return nil, fmt.Errorf("%d containers, at most %d are allowed", len(out), maxAssignments)
	}

	if err := cpumanager.Validate(out); err != nil {
		return nil, err
	}

	return out, nil
}

func parseCurrent(content []byte) ([]cpumanager.Assignment, error) {
	var entries []stateEntry
	if err := durablefile.Open(stateVersion, content, &entries); err != nil {
		return nil, err
	}

	out := make([]cpumanager.Assignment, 0, len(entries))
	for _, e := range entries {
		cpus, err := numa.ParseCPUSet(e.CPUs)
		if err != nil {
			return nil, fmt.Errorf("container %.80q: %w", e.Pod+"/"+e.Container, err)
		}

		out = append(out, cpumanager.Assignment{
			ID:     cpumanager.ID{Pod: e.Pod, Container: e.Container},
			Policy: e.Policy,
			CPUs:   cpus,
			Zones:  e.Zones,
		})
	}

	return out, nil
}

func parseGocrane(content []byte) ([]cpumanager.Assignment, error) {
	var s gocraneState
	if err := json.Unmarshal(content, &s); err != nil {
		return nil, fmt.Errorf("of gocrane: %w", err)
	}

	if _, err := numa.ParseCPUSet(s.DefaultCPUSet); err != nil {
		return nil, fmt.Errorf("of gocrane: defaultCpuSet: %w", err)
	}

	var out []cpumanager.Assignment
	for _, pod := range slices.Sorted(maps.Keys(s.Entries)) {
		for _, container := range slices.Sorted(maps.Keys(s.Entries[pod])) {
			cpus, err := numa.ParseCPUSet(s.Entries[pod][container])
			if err != nil {
				return nil, fmt.Errorf("of gocrane: container %.80q: %w", pod+"/"+container, err)
			}

			out = append(out, cpumanager.Assignment{ID: cpumanager.ID{Pod: pod, Container: container}, CPUs: cpus})
		}
	}

	return out, nil
}

func encodeState(assignments []cpumanager.Assignment) ([]byte, error) {
	entries := make([]stateEntry, len(assignments))
	for i, a := range assignments {
		entries[i] = stateEntry{
			Pod:       a.Pod,
			Container: a.Container,
			Policy:    a.Policy,
			CPUs:      a.CPUs.String(),
			Zones:     a.Zones,
		}
	}

	return durablefile.Seal(stateVersion, entries)
}

// errDamaged reports a state file that cannot be parsed.
var errDamaged = errors.New("is damaged")

// readState reads a state file; found is false if there is none.
func readState(path string) (assignments []cpumanager.Assignment, found bool, err error) {
	content, err := host.ReadRegularFile(path, maxStateBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, true, fmt.Errorf("CPU state file: %w", err)
	}

	assignments, err = parseState(content)
	if errors.Is(err, durablefile.ErrNewer) {
		return nil, true, fmt.Errorf("CPU state file %s: %w: no CPUs are assigned until the newer agent runs again, or the file is removed", path, err)
	}
	if err != nil {
		return nil, true, fmt.Errorf("CPU state file %s %w: %w", path, errDamaged, err)
	}

	return assignments, true, nil
}

// moveDamaged renames a damaged file to path.bad for inspection.
func moveDamaged(path string) error {
	if err := os.Rename(path, path+".bad"); err != nil {
		return fmt.Errorf("moving the CPU state file: %w", err)
	}

	return nil
}
