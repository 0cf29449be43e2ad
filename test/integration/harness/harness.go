// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package harness is shared by the integration tests: it builds and installs Crane's binaries, runs them as processes,
// and waits for their effects.
package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/loopback"
	"crane.io/crane/internal/testbed/redirect"
)

// Binary returns the path of a command of this module: that in the directory CRANE_BIN, or, without the variable, one that is built in dir.
func Binary(ctx context.Context, dir, command string) (string, error) {
	built := os.Getenv("CRANE_BIN")
	if built == "" {
		path := filepath.Join(dir, command)
		return path, Build(ctx, path, command)
	}

	// A read by this process, unlike one by a child, makes the cache of go test depend on the file.
	path := filepath.Join(built, command)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("finding %s in CRANE_BIN: %w", command, err)
	}

	return path, nil
}

// Build builds a command of this module with flags of go build.
func Build(ctx context.Context, path, command string, flags ...string) error {
	build := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", path}, flags...), "crane.io/crane/cmd/"+command)...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building %s: %w", command, err)
	}

	return nil
}

// Install applies the objects of config/ of the selected kinds, except Deployments and DaemonSets, whose binaries the
// tests start themselves, and webhook configurations, whose Service the API server of a test cannot reach. APIServices
// are excluded as well, because without a server they block the deletion of namespaces: tests that start a server
// install its APIService.
func Install(ctx context.Context, to *rest.Config, fieldManager string, kind func(string) bool) error {
	applier, err := manifest.NewApplier(to, fieldManager)
	if err != nil {
		return fmt.Errorf("installing config/: %w", err)
	}

	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		return fmt.Errorf("installing config/: %w", err)
	}

	selected := objects[:0]
	for _, o := range objects {
		if o.GetKind() != "Deployment" && o.GetKind() != "DaemonSet" && o.GetKind() != "APIService" && !redirect.IsWebhookConfiguration(o) && kind(o.GetKind()) {
			selected = append(selected, o)
		}
	}

	if err := applier.Apply(ctx, selected...); err != nil {
		return fmt.Errorf("installing config/: %w", err)
	}

	return nil
}

// Everything selects all kinds for Install.
func Everything(string) bool { return true }

// Nothing selects no kind for Install.
func Nothing(string) bool { return false }

// Eventually polls until check returns nil, and fails the test with its last error after bound.
func Eventually(ctx context.Context, t testing.TB, bound time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()

	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()

	var last error
	for {
		err := check(ctx)
		if err == nil {
			return
		}

		// The error of a check that was cut off says nothing about the state.
		if ctx.Err() == nil {
			last = err
		}

		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s, want it then: %v", what, bound, last)
		case <-tick.C:
		}
	}
}

// AwaitServiceAccount waits until pods can be created in a new namespace: admission rejects them before the service
// account exists.
func AwaitServiceAccount(ctx context.Context, t testing.TB, bound time.Duration, c client.Reader, namespace string) {
	t.Helper()

	Eventually(ctx, t, bound, "a service account for pods of "+namespace, func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
	})
}

// Get reads a page. A status other than 200 is an error with the body.
func Get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, body)
	}

	return string(body), err
}

// FreeAddress returns a free address of loopback, which stays reserved until the end of the test, because concurrent
// tests start processes as well.
func FreeAddress(t testing.TB) string {
	t.Helper()

	port, err := loopback.Reserve(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := port.Close(); err != nil {
			t.Error(err)
		}
	})

	return port.Address()
}
