// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hostrecording

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Multiply writes copies of a pod of a recording with cgroup v2 and systemd names to dir, each with its own UID and a
// sandbox beside its container, for measurements with many pods.
func Multiply(rec Recording, dir, uid string, copies int) error {
	pod := strings.ReplaceAll(uid, "-", "_")
	for i := range copies {
		for path, content := range rec.Moments[0].Files {
			if !strings.Contains(path, pod) {
				continue
			}

			copied := strings.ReplaceAll(path, pod, fmt.Sprintf("%08x%s", i+1, pod[8:]))
			if err := writeFile(filepath.Join(dir, copied), content); err != nil {
				return err
			}

			if group, file := filepath.Split(copied); strings.HasSuffix(group, ".scope/") {
				if err := writeFile(filepath.Join(dir, sandboxOf(group), file), content); err != nil {
					return err
				}
			}
		}
	}

	return nil
}

// sandboxOf returns the sandbox cgroup beside a container's.
func sandboxOf(group string) string {
	dir, name := filepath.Split(strings.TrimSuffix(group, "/"))
	stem := strings.TrimSuffix(name, ".scope")
	return filepath.Join(dir, stem[:len(stem)-4]+"0000.scope")
}

func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing the recording: %w", err)
	}

	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("writing the recording: %w", err)
	}

	return nil
}
