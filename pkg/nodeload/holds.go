// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"encoding/json"
	"fmt"
	"time"

	"crane.io/crane/pkg/units"
)

// HoldsKey is the key of the annotation with the holds of a node.
const HoldsKey = "node-load.crane.io/holds"

// Limits of holds.
const (
	// maxHolds is the maximum number of holds of a node.
	maxHolds = 32
	// maxHoldTime is the longest accepted hold, so that a forgotten one ends.
	maxHoldTime = 10 * time.Minute
)

// Hold is load that rebalancing reserves on a node for the replacement of a pod that it evicts elsewhere.
type Hold struct {
	// Pod is the UID of the evicted pod.
	Pod string `json:"pod"`
	// Workload is that of the pod and of its replacement, as namespace/kind/name of the controller.
	Workload string `json:"workload"`
	// CPU in thousandths of a core and Memory in bytes are the pod's usage.
	CPU    int64 `json:"cpu"`
	Memory int64 `json:"memory"`
	// Until is the end of the hold.
	Until time.Time `json:"until"`
}

// Use returns the held amount.
func (h Hold) Use() Amount {
	return Amount{CPU: units.MilliCPU(h.CPU), Memory: units.Bytes(h.Memory)}
}

// ParseHolds parses the annotation; an empty text has no holds.
func ParseHolds(text string) ([]Hold, error) {
	if text == "" {
		return nil, nil
	}

	var holds []Hold
	if err := json.Unmarshal([]byte(text), &holds); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", HoldsKey, err)
	}

	if len(holds) > maxHolds {
		return nil, fmt.Errorf("annotation %s: %d holds, want at most %d", HoldsKey, len(holds), maxHolds)
	}

	for _, h := range holds {
		if h.Pod == "" || h.Workload == "" || h.CPU < 0 || h.Memory < 0 {
			return nil, fmt.Errorf("annotation %s: want a pod, a workload and no negative amount, got %+v", HoldsKey, h)
		}
	}

	return holds, nil
}

// FormatHolds returns the text of the annotation.
func FormatHolds(holds []Hold) (string, error) {
	if len(holds) > maxHolds {
		return "", fmt.Errorf("%d holds on a node, want at most %d", len(holds), maxHolds)
	}

	text, err := json.Marshal(holds)
	if err != nil {
		return "", fmt.Errorf("writing holds: %w", err)
	}

	return string(text), nil
}

// ValidHolds returns the holds that apply at a time.
func ValidHolds(holds []Hold, now time.Time) []Hold {
	var out []Hold
	for _, h := range holds {
		if now.Before(h.Until) && h.Until.Sub(now) <= maxHoldTime {
			out = append(out, h)
		}
	}

	return out
}
