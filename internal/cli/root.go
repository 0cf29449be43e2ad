// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/kube/workloadname"
)

// Streams are the standard streams of a command. NewCommand replaces the outputs by writers that escape control characters.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// NewCommand returns the root command. If called, the path of the program, starts with kubectl-, help and examples
// show `kubectl crane`.
func NewCommand(s Streams, called string) *cobra.Command {
	s.Out = termtext.NewWriter(s.Out)
	s.Err = termtext.NewWriter(s.Err)

	cmd := &cobra.Command{
		Use:           "crane",
		Short:         "Lower the cost of a Kubernetes cluster: size workloads from measured usage, scale ahead of load, explain each decision",
		Version:       version.Long(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	if strings.HasPrefix(filepath.Base(called), "kubectl-") {
		cmd.Use = "kubectl-crane"
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl crane"}
	}

	cmd.SetIn(s.In)
	cmd.SetOut(s.Out)
	cmd.SetErr(s.Err)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err) })
	cmd.AddCommand(
		newRecommendCommand(s),
		newAdoptCommand(s),
		newCostCommand(s),
		newReportCommand(s),
		newForecastCommand(s),
		newBacktestCommand(s),
		newSimulateCommand(s),
		newDoctorCommand(s),
		newStatusCommand(s),
		newBundleCommand(s),
		newDashboardCommand(s),
		newPauseCommand(s, true),
		newPauseCommand(s, false),
		newCleanupCommand(s),
		newExplainCommand(s),
		newMigrateCommand(s),
		newRecommendationRuleCommand(s),
		newViewRecommendCommand(s),
		newVersionCommand(s),
	)

	// As a kubectl plugin, the examples name kubectl crane.
	for _, sub := range cmd.Commands() {
		setExampleName(sub, cmd.DisplayName())
	}

	return cmd
}

// setExampleName replaces the program name in the examples of a command and its subcommands.
func setExampleName(cmd *cobra.Command, name string) {
	cmd.Example = strings.ReplaceAll("\n"+cmd.Example, "\n  crane ", "\n  "+name+" ")[1:]
	for _, sub := range cmd.Commands() {
		setExampleName(sub, name)
	}
}

func newVersionCommand(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := termtext.Fprintln(s.Out, "crane", version.Long()); err != nil {
				return fmt.Errorf("writing the version: %w", err)
			}

			return nil
		},
	}
}

// newGroupCommand returns a command that only groups others.
func newGroupCommand(use, short string, members ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	cmd.AddCommand(members...)
	return cmd
}

// noArgs rejects arguments with a usage error, which suggests subcommands of a similar name.
func noArgs(cmd *cobra.Command, args []string) error {
	err := cobra.NoArgs(cmd, args)
	if err == nil {
		return nil
	}

	return usageError(fmt.Errorf("%w%s", err, workloadname.DidYouMean(args[0], subcommands(cmd))))
}

// subcommands returns the names of the subcommands of a command.
func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}

	return names
}
