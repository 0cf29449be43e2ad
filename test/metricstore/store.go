// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricstore runs the stores of metrics that users have, for tests: released programs with a given history. A test is skipped, with
// the reason, where a program is not installed.
package metricstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/testbed/process"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/integration/harness"
)

const (
	// startTimeout bounds the time until a store serves its history.
	startTimeout = time.Minute
	// binariesVariable names the directory of the programs that are built from modules.
	binariesVariable = "CRANE_STORES"
	retention        = "--storage.tsdb.retention.time=20y"
)

// Program returns the path of a program: of the operating system's or, if that has none, of `make stores`. It skips the test if there is none.
func Program(t testing.TB, name string) string {
	t.Helper()

	path, err := exec.LookPath(name)
	if dir := os.Getenv(binariesVariable); err != nil && dir != "" {
		path, err = exec.LookPath(filepath.Join(dir, name))
	}

	if err != nil {
		t.Skipf("no program %s in PATH or $%s; run make stores and make install-stores", name, binariesVariable)
	}

	return path
}

// Prometheus runs a released Prometheus on a data directory until the test ends and returns its URL. Its configuration may be empty.
func Prometheus(t testing.TB, data, configuration string, flags ...string) string {
	t.Helper()

	program := Program(t, "prometheus")
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}

	address := harness.FreeAddress(t)
	start(t, program, append([]string{"--config.file=" + file, "--storage.tsdb.path=" + data, retention, "--web.listen-address=" + address}, flags...)...)
	await(t, "http://"+address+"/-/ready", "")

	return "http://" + address
}

// writeBlocks writes a history as blocks of Prometheus and returns the directory.
func writeBlocks(t testing.TB, grid promserver.Grid, series []promserver.Series) string {
	t.Helper()

	dir := filepath.Join(t.TempDir(), "data")
	if _, err := promserver.WriteBlocks(t.Context(), dir, grid, series); err != nil {
		t.Fatal(err)
	}

	return dir
}

// start runs a program until the test ends, or until the function that it returns is called.
func start(t testing.TB, program string, args ...string) (stop func()) {
	t.Helper()

	p, err := process.Start(process.Spec{
		Name:      filepath.Base(program),
		Path:      program,
		Args:      args,
		LastLines: 50,
	})
	if err != nil {
		t.Fatal(err)
	}

	// A store that had to be killed has no state that a test needs.
	stop = func() {
		if err := p.Stop(context.WithoutCancel(t.Context())); err != nil && !errors.Is(err, process.ErrKilled) {
			t.Logf("%s ended: %v", program, err)
		}
	}

	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("last lines of %s:\n%s", program, strings.Join(p.LastLines(), "\n"))
		}
	})

	return stop
}

// Start runs a store with a history until the test ends and returns its URL.
type Start func(t testing.TB, grid promserver.Grid, series []promserver.Series) string

// await waits until a page exists and contains a text.
func await(t testing.TB, url, text string) {
	t.Helper()

	harness.Eventually(t.Context(), t, startTimeout, url, func(ctx context.Context) error {
		body, err := harness.Get(ctx, url)
		if err == nil && !strings.Contains(body, text) {
			err = fmt.Errorf("no %q in %q", text, body)
		}

		return err
	})
}
