// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func parse(t *testing.T, args ...string) (*Options, error) {
	t.Helper()

	o := NewOptions()
	fs := pflag.NewFlagSet("playground", pflag.ContinueOnError)
	o.AddFlags(fs)

	if err := fs.Parse(args); err != nil {
		return o, err
	}

	if err := o.Complete(fs); err != nil {
		return o, err
	}

	return o, o.Validate()
}

func TestOptionsOutOfRange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no nodes":            {[]string{"--nodes", "0"}, "--nodes"},
		"too many nodes":      {[]string{"--nodes", "1001"}, "--nodes"},
		"nothing to run":      {[]string{"--workloads", "0"}, "--workloads"},
		"negative workloads":  {[]string{"--workloads", "-1"}, "--workloads"},
		"no days":             {[]string{"--days", "0"}, "--days"},
		"step too long":       {[]string{"--step", "2m"}, "--step"},
		"step not in seconds": {[]string{"--step", "15500ms"}, "--step"},
		"speed below one":     {[]string{"--speed", "0.5"}, "--speed"},
		"speed not a number":  {[]string{"--speed", "NaN"}, "--speed"},
		"unknown resource":    {[]string{"--resource", "disk"}, "--resource"},
		"unknown component":   {[]string{"--only", "etcd"}, "--only"},
		"craned alone":        {[]string{"--only", "craned"}, "prometheus"},
		"traces is no folder": {[]string{"--traces", file}, "--traces"},
		"unknown demo":        {[]string{"--demo", "nope"}, "faults"},
		"demo file is absent": {[]string{"--demo", "./nope.yaml"}, "nope.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Complete and Validate with %v = %v, want an error that names %s", c.args, err, c.want)
			}
		})
	}
}

func TestTracesReplaceTheGenerator(t *testing.T) {
	dir := t.TempDir()
	if o, err := parse(t, "--traces", dir); err != nil || o.Workloads != 0 {
		t.Errorf("options of --traces: %d workloads, error %v; want 0 generated workloads", o.Workloads, err)
	}
	if o, err := parse(t, "--traces", dir, "--workloads", "5"); err != nil || o.Workloads != 5 {
		t.Errorf("options of --traces --workloads 5: %d workloads, error %v; want 5", o.Workloads, err)
	}
	if o, err := parse(t); err != nil || o.Workloads != 60 || o.Nodes != 12 || o.Days != 14 {
		t.Errorf("options without flags: %+v, error %v; want 60 workloads, 12 nodes, 14 days", o, err)
	}
}

func TestOnlyChoosesComponents(t *testing.T) {
	o, err := parse(t, "--only", "prometheus,craned")
	if err != nil {
		t.Fatal(err)
	}

	for c, want := range map[string]bool{componentPrometheus: true, componentCraned: true, componentScheduler: false} {
		if o.runs(c) != want {
			t.Errorf("runs(%s) with --only prometheus,craned = %t, want %t", c, !want, want)
		}
	}
}
