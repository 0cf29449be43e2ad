// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimulateSchedule checks that flags, output and exit code are passed through.
func TestSimulateSchedule(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$@\"\ncase \"$*\" in *fail*) exit 7;; esac\n"
	if err := os.WriteFile(filepath.Join(dir, schedulerBinary), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}

	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	run := func(args ...string) (string, error) {
		out, _, err := execute(t, append([]string{"simulate", "schedule"}, args...)...)
		return out, err
	}

	out, err := run("--nodes", "300", "-o", "json")
	if err != nil || out != "simulate --nodes 300 -o json\n" {
		t.Errorf("the scheduler was called with %q, error %v, want its flags as given", out, err)
	}

	_, err = run("--fail")
	if coded, ok := errors.AsType[*exitError](err); !ok || coded.code != 7 {
		t.Errorf("error %v, want exit code 7", err)
	}

	t.Setenv("PATH", t.TempDir())
	if _, err = run(); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("without crane-scheduler: %v, want the build command", err)
	}
}
