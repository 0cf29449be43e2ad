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

// Paths of a split configuration.
const (
	splitConfig = configDir + "/kubelet.yaml"
	dropInDir   = configDir + "/kubelet.d"
)

// kubeletFiles returns the files of the kubelet's configuration and the flags that refer to them.
func kubeletFiles(o NodeOptions) (files map[string]nodespec.File, flags []string, err error) {
	k := kubeletConfiguration(o)
	if !o.SplitConfig {
		content, err := json.Marshal(k)
		if err != nil {
			return nil, nil, fmt.Errorf("kubelet configuration: %w", err)
		}
		return map[string]nodespec.File{kubeletConfig: {Content: string(content)}}, []string{"--config", kubeletConfig}, nil
	}
	// A marshalled KubeletConfiguration would contain zero durations that override the main file.
	dropIn, err := json.Marshal(map[string]string{"apiVersion": k.APIVersion, "kind": k.Kind, "reservedSystemCPUs": k.ReservedSystemCPUs})
	if err != nil {
		return nil, nil, fmt.Errorf("kubelet configuration: %w", err)
	}
	reserved := k.SystemReserved
	k.ReservedSystemCPUs, k.SystemReserved = "", nil
	content, err := json.Marshal(k)
	if err != nil {
		return nil, nil, fmt.Errorf("kubelet configuration: %w", err)
	}
	return map[string]nodespec.File{
		splitConfig:                     {Content: string(content)},
		dropInDir + "/10-reserved.conf": {Content: string(dropIn)},
	}, append([]string{"--config", splitConfig, "--config-dir", dropInDir}, reservedFlag(reserved)...), nil
}

// reservedFlag returns the flag --system-reserved.
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
