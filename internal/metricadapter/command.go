// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/version"
)

// NewCommand returns the command of metric-adapter: flags, Validate, Run.
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:   "metric-adapter",
		Short: "Serves the external and custom metrics API, with Crane's forecasts",
		Long: "metric-adapter answers HorizontalPodAutoscalers: what Crane forecasts, what a configuration of prometheus-adapter defines,\n" +
			"and what another adapter serves.",
		Version:       version.Long(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate().ToAggregate(); err != nil {
				return fmt.Errorf("invalid flags: %w", err)
			}
			log := newLogger(cmd.ErrOrStderr(), o)
			ctrl.SetLogger(log)
			klog.SetLogger(log)
			return Run(ctrl.LoggerInto(cmd.Context(), log), o)
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}

// newLogger writes structured lines. logr's verbosity n is slog's level -n.
func newLogger(w io.Writer, o *Options) logr.Logger {
	opts := &slog.HandlerOptions{Level: slog.Level(-o.Verbosity)}
	var handler slog.Handler = slog.NewTextHandler(w, opts)
	if o.LogFormat == logFormatJSON {
		handler = slog.NewJSONHandler(w, opts)
	}
	return logr.FromSlogHandler(handler)
}
