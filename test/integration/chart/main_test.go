// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart_test renders the chart with helm and installs, upgrades, rolls back and uninstalls it against a real API server.
package chart_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/test/integration/harness"
)

const (
	chart     = "../../../charts/crane"
	namespace = "crane-system"
	release   = "crane"
	// registry and server are values that have no default.
	registry = "image.registry=registry.example/crane"
	server   = "prometheus.url=http://prometheus.monitoring:9090"
)

// helm is the path of the command.
var helm string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "chart-test-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()

		helm, err = harness.FindHelm(context.Background(), dir)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return m.Run()
}

// tryHelm runs helm without a home directory of the user and returns its output, and its messages in the error.
func tryHelm(t *testing.T, args ...string) (string, error) {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), helm, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stderr bytes.Buffer

	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w: %s%s", strings.Join(args, " "), err, stderr.String(), out)
	}

	return string(out), nil
}

func runHelm(t *testing.T, args ...string) string {
	t.Helper()

	out, err := tryHelm(t, args...)
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// render returns the objects of `helm template`.
func render(t *testing.T, args ...string) []*unstructured.Unstructured {
	t.Helper()

	out := runHelm(t, append([]string{"template", release, chart, "--namespace", namespace, "--set", registry, "--set", server}, args...)...)
	objects, err := manifest.ParseString(out)
	if err != nil {
		t.Fatal(err)
	}

	return objects
}

// nameOf identifies an object.
func nameOf(o *unstructured.Unstructured) string {
	return o.GroupVersionKind().GroupKind().String() + " " + o.GetNamespace() + "/" + o.GetName()
}
