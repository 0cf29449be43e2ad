// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestEnvironment checks that a shell gets the settings, with a space in a path.
func TestEnvironment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b")
	script := environment(filepath.Join(dir, "kubeconfig"), "http://127.0.0.1:9090", dir) + `printf '%s|%s|%s' "$KUBECONFIG" "$CRANE_PROMETHEUS_URL" "${PATH%%:*}"`
	out, err := exec.CommandContext(t.Context(), "bash", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("running a shell with environment(...): %v; output: %s", err, out)
	}

	if want := strings.Join([]string{filepath.Join(dir, "kubeconfig"), "http://127.0.0.1:9090", dir}, "|"); string(out) != want {
		t.Errorf("settings of the shell = %s, want %s", out, want)
	}
}

// TestDemosEnd checks that a playground stops after a demo, unless it is to be kept.
func TestDemosEnd(t *testing.T) {
	for _, c := range []struct {
		demo             string
		keep, once, ends bool
	}{{"faults", false, false, true}, {"faults", true, false, false}, {"", false, false, false}, {"", false, true, true}} {
		o := NewOptions()
		o.Demo = c.demo

		o.Keep = c.keep
		o.Once = c.once
		if err := o.Complete(pflag.NewFlagSet("playground", pflag.ContinueOnError)); err != nil {
			t.Fatal(err)
		}

		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}

		if o.ends() != c.ends {
			t.Errorf("ends() of %+v = %t, want %t", c, o.ends(), c.ends)
		}
	}

	o := NewOptions()
	o.Keep = true
	if err := o.Validate(); err == nil {
		t.Error("Validate with --keep and without --demo: no error, want one")
	}
}
