// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"crane.io/crane/internal/testbed/realnode/nodespec"
)

// Places of a configuration that is scattered.
const (
	scatteredConfig = configDir + "/kubelet.yaml"
	dropInDir       = configDir + "/kubelet.d"
)

// configure is the kubelet's configuration in files, and the flags by which it finds them.
func configure(o NodeOptions) (files map[string]nodespec.File, flags []string, err error) {
	k := kubeletConfiguration(o)
	if !o.Scattered {
		content, err := json.Marshal(k)
		if err != nil {
			return nil, nil, fmt.Errorf("kubelet's configuration: %w", err)
		}
		return map[string]nodespec.File{kubeletConfig: {Content: string(content)}}, []string{"--config", kubeletConfig}, nil
	}
	// Of the whole structure the durations that are not set would be there as well, and hold.
	dropIn, err := json.Marshal(map[string]string{"apiVersion": k.APIVersion, "kind": k.Kind, "reservedSystemCPUs": k.ReservedSystemCPUs})
	if err != nil {
		return nil, nil, fmt.Errorf("kubelet's configuration: %w", err)
	}
	reserved := k.SystemReserved
	k.ReservedSystemCPUs, k.SystemReserved = "", nil
	content, err := json.Marshal(k)
	if err != nil {
		return nil, nil, fmt.Errorf("kubelet's configuration: %w", err)
	}
	return map[string]nodespec.File{
		scatteredConfig:                 {Content: string(content)},
		dropInDir + "/10-reserved.conf": {Content: string(dropIn)},
	}, append([]string{"--config", scatteredConfig, "--config-dir", dropInDir}, reservedFlag(reserved)...), nil
}

// reservedFlag says on the command line what is reserved.
func reservedFlag(reserved map[string]string) []string {
	if len(reserved) == 0 {
		return nil
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		pairs = append(pairs, name+"="+reserved[name])
	}
	return []string{"--system-reserved", strings.Join(pairs, ",")}
}
