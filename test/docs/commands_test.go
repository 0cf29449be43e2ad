// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"crane.io/crane/internal/agent"
	"crane.io/crane/internal/cli"
	"crane.io/crane/internal/craned"
	"crane.io/crane/internal/metricadapter"
	"crane.io/crane/internal/testbed/playground"
)

// commands returns the commands of the binaries by their names. crane-scheduler is not among them, since it links Kubernetes.
func commands() map[string]*cobra.Command {
	play := &cobra.Command{Use: "playground", Short: "Run Kubernetes, simulated nodes, a Prometheus with history and Crane on this machine"}
	playground.NewOptions().AddFlags(play.Flags())
	out := map[string]*cobra.Command{
		"crane":          cli.NewCommand(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, "crane"),
		"craned":         craned.NewCommand(),
		"crane-agent":    agent.NewCommand(),
		"metric-adapter": metricadapter.NewCommand(),
		"playground":     play,
	}

	for _, c := range out {
		c.InitDefaultHelpFlag()
		c.InitDefaultVersionFlag()
	}

	return out
}
