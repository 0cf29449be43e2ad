// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/test/hostrecording"
)

// TestRuntimeHangs checks that a hanging container runtime delays nothing.
func TestRuntimeHangs(t *testing.T) {
	rec := hostrecording.ForTest(t, "v2-systemd-containerd")
	socket := filepath.Join(rec.Dir, "run/containerd/containerd.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}

	// The length of a socket name is bounded, so it is created from its own directory.
	t.Chdir(filepath.Dir(socket))

	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Base(socket), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	o := NewOptions()
	o.HostRoot = rec.Dir
	o.DryRun = true
	o.Once = true

	o.Interval = minInterval
	r, err := observeOnce(logr.NewContext(t.Context(), logr.Discard()), o, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}

	if len(r.snapshot.Pods) != 4 || !r.snapshot.Pods[0].UsedCPU.OK {
		t.Errorf("the snapshot has %d pods: %+v; want 4 with CPU", len(r.snapshot.Pods), r.snapshot.Pods)
	}

	said := ""
	for _, f := range r.features {
		if f.Name == "runtime" {
			said = f.String()
		}
	}

	if !strings.Contains(said, "/run/containerd/containerd.sock") {
		t.Errorf("feature runtime is %q, want the socket of containerd", said)
	}
	// Connections wait to be accepted.
	if err := listener.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}

	if c, err := listener.Accept(); err == nil {
		c.Close()
		t.Error("the runtime got a connection, want none")
	}
}
