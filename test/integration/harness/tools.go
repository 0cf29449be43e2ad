// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// FindTool returns the path of a program that tests call: of $CRANE_NAME or of bin/. Without these the package is built into dir, in the module at
// a directory relative to that of this module.
func FindTool(ctx context.Context, dir, name, module, pkg string) (string, error) {
	if path := os.Getenv("CRANE_" + strings.ToUpper(name)); path != "" {
		return path, nil
	}

	root, err := filepath.Abs("../../..")
	if err != nil {
		return "", err
	}

	path := filepath.Join(root, "bin", name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}

	path = filepath.Join(dir, name)
	build := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
	build.Dir = filepath.Join(root, module)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", name, err, out)
	}

	return path, nil
}

// FindHelm returns the path of helm.
func FindHelm(ctx context.Context, dir string) (string, error) {
	return FindTool(ctx, dir, "helm", "hack/tools/helm", "helm.sh/helm/v4/cmd/helm")
}

// FindKubectl returns the path of kubectl.
func FindKubectl(ctx context.Context, dir string) (string, error) {
	return FindTool(ctx, dir, "kubectl", ".", "k8s.io/kubernetes/cmd/kubectl")
}
