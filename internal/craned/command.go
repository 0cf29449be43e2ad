// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/component/version"
	"crane.io/crane/pkg/recommend"
)

// NewCommand returns the command of craned: flags, Complete, Validate, Run. It has the built-in recommenders and additional ones.
func NewCommand(additional ...recommend.Recommender) *cobra.Command {
	o := NewOptions()
	o.recommenders = additional
	cmd := &cobra.Command{
		Use:   "craned",
		Short: "Crane's controller manager",
		Long: "craned takes RecommendationRules to Recommendations: it looks at what workloads really used and says what they\n" +
			"should ask for.",
		Version:       version.Long(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The file fills in flags first, so that all values are completed and validated.
			if err := o.ApplyFile(cmd.Flags()); err != nil {
				return err
			}

			warnings := o.Complete(cmd.Flags())
			if err := o.Validate().ToAggregate(); err != nil {
				return fmt.Errorf("invalid flags: %w", err)
			}

			log := o.Log.New(cmd.ErrOrStderr())
			ctrl.SetLogger(log)
			klog.SetLogger(log)

			for _, w := range warnings {
				log.Info(w)
			}

			return Run(ctrl.LoggerInto(cmd.Context(), log), o)
		},
	}

	o.AddFlags(cmd.Flags())
	return cmd
}
