// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// MaxKubeletFileBytes bounds what is read of a file of the kubelet; one has some KiB.
const MaxKubeletFileBytes = 1 << 20

// ReadKubeletFile reads a file of the kubelet. Where it is not there the error is fs.ErrNotExist; what is no file, or larger than
// MaxKubeletFileBytes, is not read.
func ReadKubeletFile(root Root, parts ...string) ([]byte, error) {
	path := root.Path(parts...)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > MaxKubeletFileBytes {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, MaxKubeletFileBytes)
	}
	return os.ReadFile(path)
}

// ReadKubeletPolicy is the policy in a state file of the kubelet's in its directory, such as cpu_manager_state, in small letters; empty where the
// file names none.
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
