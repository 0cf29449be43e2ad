// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const migrateAwayLong = `Away removes Crane and leaves what runs as it is. EffectiveHorizontalPodAutoscalers become plain HPAs with the same minimum, maximum, metrics and
behavior; where a forecast or a schedule held replicas, the minimum is the replicas of that moment, and annotation
migrate.crane.io/min-replicas has the former one. Running pods keep the requests that Crane applied. Then Crane's objects, definitions, rights
and marks on nodes are removed.

crane migrate status, undo and finish act on it as on a migration: until finish, undo brings Crane back with all its objects.`

// newMigrateAwayCommand returns `crane migrate away`.
func newMigrateAwayCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "away",
		Short: "Remove Crane and leave plain HPAs and requests",
		Long:  migrateAwayLong,
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	cmd.AddCommand(newMigrateAwayPlanCommand(s), newMigrateAwayRunCommand(s))
	return cmd
}

// addAwayChoices adds the flags of what is kept.
func (o *migrateOptions) addAwayChoices(fs *pflag.FlagSet) {
	o.choices.Away = true
	fs.StringSliceVar(&o.namespaces, "namespace", nil, "namespace of Crane (default: the one that Crane's ClusterRoleBindings prove)")
	fs.StringVar(&o.choices.Requests, "requests", "", "where running pods have other requests than their template: pods leaves both, template writes them into the template, which rolls the workload out")
	fs.StringVar(&o.choices.Scheduler, "scheduler", "", "where workloads name crane-scheduler: keep or remove it")
	fs.StringVar(&o.choices.MetricAdapter, "metric-adapter", "", "where HPAs read metrics of metric-adapter: keep or remove it")
}

func newMigrateAwayPlanCommand(s Streams) *cobra.Command {
	o := &migrateOptions{}
	cmd := &cobra.Command{
		Use:     "plan",
		Short:   "Print the steps that remove Crane",
		Args:    noArgs,
		Long:    "Plan prints the steps that crane migrate away run takes, or the remaining ones, and what needs a decision. It changes nothing.",
		Example: "  crane migrate away plan",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(checkTableOrJSON(o.output), o.choices.Validate()); err != nil {
				return usageError(err)
			}

			m, _, err := o.migration(s)
			if err != nil {
				return err
			}

			plan, err := m.Plan(cmd.Context(), o.choices, nil)
			if err != nil {
				return err
			}

			return renderMigratePlan(s, plan, o.output)
		},
	}

	o.addFlags(cmd.Flags())
	o.addAwayChoices(cmd.Flags())
	cmd.Flags().StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")

	return cmd
}

func newMigrateAwayRunCommand(s Streams) *cobra.Command {
	o := &migrateOptions{}
	var confirmed, dryRun bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Remove Crane, step by step",
		Args:  noArgs,
		Long: `Run removes Crane. The backup is in a file on this machine, --state-file, and the progress in ConfigMap crane-migration in namespace kube-system; a run that was
interrupted continues where it ended. It pauses once HPAs are released and craned has stopped; --continue confirms the removal. The Namespace stays.

Exit codes: 0 every step is done, or the dry run passed; 1 a step failed; 2 the flags are invalid; 4 paused.`,
		Example: "  crane migrate away run --requests pods --scheduler keep --dry-run\n  crane migrate away run --continue",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.choices.Validate(); err != nil {
				return usageError(err)
			}

			m, _, err := o.migration(s)
			if err != nil {
				return err
			}

			return runMigration(cmd.Context(), m, o.choices, nil, confirmed, dryRun)
		},
	}

	o.addFlags(cmd.Flags())
	o.addAwayChoices(cmd.Flags())
	cmd.Flags().BoolVar(&confirmed, "continue", false, "continue after the pause")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "let the server check all writes and store none")

	return cmd
}
