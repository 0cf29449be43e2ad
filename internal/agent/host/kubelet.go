// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// MaxKubeletFileBytes limits the size of a kubelet file; real ones have some KiB.
const MaxKubeletFileBytes = 1 << 20

// ReadKubeletFile reads a file of the kubelet. It returns fs.ErrNotExist for a missing file, and an error for one that is not regular or
// larger than MaxKubeletFileBytes.
func ReadKubeletFile(root Root, parts ...string) ([]byte, error) {
	return ReadRegularFile(root.Path(parts...), MaxKubeletFileBytes)
}

// ReadRegularFile reads a regular file of at most maxBytes. It returns fs.ErrNotExist for a missing file.
func ReadRegularFile(path string, maxBytes int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxBytes {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxBytes)
	}
	return os.ReadFile(path)
}

// ReadKubeletPolicy returns the policy in a state file of the kubelet such as cpu_manager_state, in lower case; empty if the file names
// none.
func ReadKubeletPolicy(root Root, dir, file string) (string, error) {
	content, err := ReadKubeletFile(root, dir, file)
	if err != nil {
		return "", err
	}
	var state struct {
		PolicyName string `json:"policyName"`
	}
	if err := json.Unmarshal(content, &state); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return strings.ToLower(state.PolicyName), nil
}
