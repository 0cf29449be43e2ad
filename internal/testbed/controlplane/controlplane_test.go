// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// These tests run without a cluster; test/integration/controlplane tests the running cluster.

func TestComplete(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "controlplane")
	if err := os.WriteFile(binary, nil, 0o700); err != nil {
		t.Fatal(err)
	}

	for name, test := range map[string]struct {
		options Options
		want    string // of the error; empty for none
	}{
		"zero":                 {Options{Binary: binary}, ""},
		"all":                  {Options{Binary: binary, Components: []Component{Scheduler, ControllerManager, APIServer}}, ""},
		"arguments of API":     {Options{Binary: binary, ExtraArgs: map[Component][]string{APIServer: {"-v=1"}}}, ""},
		"unknown component":    {Options{Binary: binary, Components: []Component{"proxy"}}, `"proxy"`},
		"arguments of nothing": {Options{Binary: binary, ExtraArgs: map[Component][]string{Scheduler: {"-v=1"}}}, `"scheduler"`},
		"negative port":        {Options{Binary: binary, APIServerPort: -1}, "-1"},
		"large port":           {Options{Binary: binary, APIServerPort: 65536}, "65536"},
		"no binary":            {Options{Binary: binary + "-not"}, binary + "-not"},
		"binary is directory":  {Options{Binary: filepath.Dir(binary)}, "directory"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := test.options.complete()
			if test.want == "" && (err != nil || o.Log == nil || o.ReadyTimeout <= 0 || o.Binary != binary) {
				t.Errorf("complete() = %+v, error %v; want defaults and binary %s", o, err, binary)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("complete() = %v, want an error with %s", err, test.want)
			}
		})
	}
}

func TestBinaryFromEnvironment(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "cp")
	if err := os.WriteFile(binary, nil, 0o700); err != nil {
		t.Fatal(err)
	}

	t.Setenv(BinaryEnv, binary)
	if got, err := findBinary(""); got != binary || err != nil {
		t.Errorf("findBinary() = %q, error %v; want %q", got, err, binary)
	}

	t.Setenv(BinaryEnv, "")
	if _, err := findBinary(""); err == nil || !strings.Contains(err.Error(), BinaryEnv) {
		t.Errorf("findBinary() = %v, want an error that names %s", err, BinaryEnv)
	}
}

func TestArgs(t *testing.T) {
	c := arguments{
		layout: layout{root: "/state"}, port: 4321,
		options: Options{
			Components: []Component{Scheduler},
			ExtraArgs:  map[Component][]string{APIServer: {"--v=4"}, Scheduler: {"--config=x"}},
		},
	}

	server := c.args(APIServer)
	for _, want := range []string{
		"--data-dir=/state/data", "--secure-port=4321", "--bind-address=127.0.0.1",
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection",
	} {
		if !slices.Contains(server, want) {
			t.Errorf("args(APIServer) = %q, want %s in it", server, want)
		}
	}

	if server[0] != "apiserver" || server[len(server)-1] != "--v=4" {
		t.Errorf("args(APIServer) = %q, want the component first and the extra ones last", server)
	}

	scheduler := c.args(Scheduler)
	if scheduler[0] != "scheduler" || scheduler[1] != "--" || scheduler[len(scheduler)-1] != "--config=x" {
		t.Errorf("args(Scheduler) = %q, want scheduler and -- first, the extra one last", scheduler)
	}

	c.options.Components = []Component{ControllerManager}
	if slices.ContainsFunc(c.args(APIServer), func(a string) bool { return strings.HasPrefix(a, "--disable-admission") }) {
		t.Error("args(APIServer) with the controller manager disables admission plugins, want none disabled")
	}

	for _, arg := range c.args(ControllerManager) {
		if strings.Contains(arg, "profiling") && arg != "--profiling=false" {
			t.Errorf("args(ControllerManager) has %s, want --profiling=false", arg)
		}
	}
}

func TestLastPort(t *testing.T) {
	l := layout{root: t.TempDir()}
	if got := l.lastPort(); got != 0 {
		t.Errorf("lastPort() without a file = %d, want 0", got)
	}
	if err := l.savePort(4321); err != nil {
		t.Fatal(err)
	}

	if got := l.lastPort(); got != 4321 {
		t.Errorf("lastPort() = %d, want 4321", got)
	}

	for _, text := range []string{"", "x", "-1", "70000", "1 2"} {
		if err := os.WriteFile(l.portFile(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		if got := l.lastPort(); got != 0 {
			t.Errorf("lastPort() of a file with %q = %d, want 0", text, got)
		}
	}
}
