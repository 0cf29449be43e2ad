// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/component/version"
)

// NewCommand returns the command of metric-adapter.
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
			log := o.Log.New(cmd.ErrOrStderr())
			ctrl.SetLogger(log)
			klog.SetLogger(log)
			return Run(ctrl.LoggerInto(cmd.Context(), log), o)
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}
