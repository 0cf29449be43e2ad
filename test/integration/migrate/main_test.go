// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migrate_test moves generated installations of gocrane to Crane and back, on a real API server.
package migrate_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/cli"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/controlplanetest"
)

// fixtures is the folder with files of gocrane's repositories, which are no part of this one.
const fixtures = "../../../../shared/gocrane"

// fixtureFile returns the path of a file of gocrane, and skips the test without it. FIXTURES_GOCRANE names another folder.
func fixtureFile(t *testing.T, path string) string {
	t.Helper()
	dir := os.Getenv("FIXTURES_GOCRANE")
	if dir == "" {
		dir = fixtures
	}
	file := filepath.Join(dir, path)
	if _, err := os.Stat(file); err != nil {
		t.Skipf("gocrane's files are not here: %v", err)
	}
	return file
}

// fixture is an API server with an installation of gocrane. The controllers of workloads run, and the garbage collector; there are no
// kubelets, and a simulation marks pods as ready in their place. Workloads of users are scaled to zero.
type fixture struct {
	*testing.T
	control *controlplane.ControlPlane
	client  client.Client
	// installation is what has been generated.
	installation *installation
	// ignoreUIDs reports whether comparisons leave out the uids of owners.
	ignoreUIDs bool
	// load is that of workloads whose pods run; nil without.
	load *loadOf
	// discovery reads paths; nil without load.
	discovery discovery.DiscoveryInterface
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	fixtureFile(t, "README.md")
	control := controlplanetest.ForTest(t, controlplane.Options{
		Components: []controlplane.Component{controlplane.ControllerManager},
	})
	c, err := client.New(quiet(control.Config()), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{T: t, control: control, client: c}
}

// quiet drops the warnings of the API server, which gocrane's manifests cause.
func quiet(config *rest.Config) *rest.Config {
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return config
}

// crane runs the command line with a kubeconfig.
func (f *fixture) crane(kubeconfig string, args ...string) (out, errOut string, code int) {
	f.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Main(append(append([]string{"crane"}, args...), "--kubeconfig", kubeconfig), strings.NewReader(""), &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}
