// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"crane.io/crane/internal/component/version"
)

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// NewCommand returns the root command. called is how the program was called: as kubectl-crane it speaks of itself as
// `kubectl crane`.
func NewCommand(s Streams, called string) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "crane",
		Short:         "Says what workloads should ask for, from what they really used",
		Version:       version.Long(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if strings.HasPrefix(filepath.Base(called), "kubectl-") {
		// kubectl finds the plugin by this name; the user typed `kubectl crane`.
		cmd.Use = "kubectl-crane"
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl crane"}
	}
	cmd.SetIn(s.In)
	cmd.SetOut(s.Out)
	cmd.SetErr(s.Err)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err) })
	cmd.AddCommand(newRecommendCommand(s), newAdoptCommand(s), newCostCommand(s), newForecastCommand(s), newBacktestCommand(s), newSimulateCommand(s), newDoctorCommand(s), newExplainCommand(s), newVersionCommand(s))
	for _, sub := range cmd.Commands() {
		exampleOf(sub, cmd.DisplayName())
	}
	return cmd
}

// exampleOf writes examples as the user calls the program.
func exampleOf(cmd *cobra.Command, name string) {
	cmd.Example = strings.ReplaceAll("\n"+cmd.Example, "\n  crane ", "\n  "+name+" ")[1:]
	for _, sub := range cmd.Commands() {
		exampleOf(sub, name)
	}
}

func newVersionCommand(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := fmt.Fprintln(s.Out, "crane", version.Long()); err != nil {
				return fmt.Errorf("writing the version: %w", err)
			}
			return nil
		},
	}
}

// noArgs is cobra.NoArgs with the exit code of a usage error.
func noArgs(cmd *cobra.Command, args []string) error { return usageError(cobra.NoArgs(cmd, args)) }
