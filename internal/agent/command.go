// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/pkg/qos/scenario"
)

// NewCommand returns the crane-agent command.
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:   "crane-agent",
		Short: "Protects a node under pressure",
		Long: "crane-agent watches pods and pressure on a node. It says what it sees and what the rules of the API server, or of a\n" +
			"file, would do (--dry-run --once), goes on watching (--dry-run), and carries out what --enforce names.",
		Version:       version.Long(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			warnings := o.Complete(cmd.Flags())
			if err := o.Validate().ToAggregate(); err != nil {
				return fmt.Errorf("invalid flags: %w", err)
			}

			log := o.Log.New(cmd.ErrOrStderr())
			klog.SetLogger(log)

			for _, w := range warnings {
				log.Info(w)
			}

			return Run(logr.NewContext(cmd.Context(), log), o, clock.RealClock{}, termtext.NewWriter(cmd.OutOrStdout()))
		},
	}

	o.AddFlags(cmd.Flags())
	cmd.AddCommand(newRecordCommand())
	return cmd
}

// Run runs the mode selected by the flags and prints to out.
func Run(ctx context.Context, o *Options, clk clock.WithTicker, out io.Writer) error {
	// Scenarios and recordings need no host; cleaning up needs no cluster.
	if o.Scenario != "" {
		return playScenario(o.Scenario, out)
	}

	if o.Replay != "" {
		return o.replay(out)
	}

	if o.CleanUp {
		return o.cleanUp(logr.FromContextOrDiscard(ctx), act.KernelFileWriter{}, out)
	}

	if !o.Once {
		return runAgent(ctx, o, clk, act.KernelFileWriter{})
	}

	r, err := observeOnce(ctx, o, clk)
	if err != nil {
		return err
	}

	if o.Output == outputJSON {
		return r.writeJSON(out)
	}

	return r.writeTable(out)
}

// playScenario runs a scenario and prints its log. Failed expectations are an error.
func playScenario(path string, out io.Writer) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("scenario: %w", err)
	}

	s, err := scenario.Parse(string(text))
	if err != nil {
		return fmt.Errorf("scenario %s: %w", path, err)
	}

	played, err := s.Run()
	if err != nil {
		return fmt.Errorf("scenario %s: %w", path, err)
	}

	// The log is printed before the failures, so that their cause can be read above them.
	fmt.Fprintln(out, s.Title)

	for _, e := range played.Log {
		fmt.Fprintf(out, "%8s  %s\n", e.At, e.Text)
	}

	for _, wrong := range played.Failed {
		fmt.Fprintln(out, "FAILED", wrong)
	}

	if n := len(played.Failed); n > 0 {
		return fmt.Errorf("scenario %s: %d expectations do not hold", path, n)
	}

	return nil
}
