// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migrate_test moves generated installations of gocrane to Crane and back, on a real API server.
package migrate_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/cli"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/simnode/tunnel"
	"crane.io/crane/test/controlplanetest"
)

// fixtures is the folder with files of gocrane's repositories, which are no part of this one.
const fixtures = "../../../../shared/gocrane"

// fixtureFile returns the path of a file of gocrane. FIXTURES_GOCRANE names another folder.
func fixtureFile(path string) string {
	dir := os.Getenv("FIXTURES_GOCRANE")
	if dir == "" {
		dir = fixtures
	}

	return filepath.Join(dir, path)
}

// hasFixtures reports whether gocrane's files are here. Without them tests run with the stand-ins of standin_test.go.
func hasFixtures() bool {
	_, err := os.Stat(fixtureFile("README.md"))
	return err == nil
}

// needsFixtures skips a test without gocrane's files.
func needsFixtures(t *testing.T) {
	t.Helper()

	if !hasFixtures() {
		t.Skip("gocrane's files are not here")
	}
}

// TestMain keeps the state files of migrations from the user's configuration.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "migrate-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)

	if err := os.Setenv("XDG_CONFIG_HOME", dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return m.Run()
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

	network := newNetwork(t)
	control := controlplanetest.ForTest(t, controlplane.Options{
		Components: []controlplane.Component{controlplane.ControllerManager},
		ExtraArgs:  map[controlplane.Component][]string{controlplane.APIServer: network.APIServerArgs()},
	})
	serve(t, network, nil, func(context.Context) {}) // no Service is reached

	c, err := client.New(quiet(control.Config()), client.Options{})
	if err != nil {
		t.Fatal(err)
	}

	return &fixture{T: t, control: control, client: c}
}

// newNetwork returns the network by which an API server reaches webhooks and aggregated APIs. It refuses what is not on loopback.
func newNetwork(t *testing.T) *tunnel.Tunnel {
	t.Helper()

	network, err := tunnel.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	return network
}

// serve forwards what the API server sends to Services by route, until the test ends; nil for no Service. last is called before the network stops.
func serve(t *testing.T, network *tunnel.Tunnel, route func(hostPort string) (string, bool), last func(context.Context)) {
	t.Helper()

	network.Route = route
	background, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan struct{})

	go func() { defer close(served); network.Serve(background) }()
	t.Cleanup(func() {
		last(background)
		cancel()
		<-served
	})
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
