// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/migrate"
)

// defaultMigrateTimeout bounds each wait for pods, which may have to pull images.
const defaultMigrateTimeout = 5 * time.Minute

// migrateOptions are the flags of the commands that plan and run a migration.
type migrateOptions struct {
	kubernetes clusteraccess.Access
	choices    migrate.Options
	manifests  string
	stateFile  string
	namespaces []string
	timeout    time.Duration
	output     string
}

func (o *migrateOptions) addFlags(fs *pflag.FlagSet) {
	addKubernetesFlags(fs, &o.kubernetes)
	fs.StringVar(&o.stateFile, "state-file", "", "file with the backup and the key of the journal, readable for its owner alone (default: crane/migrations/UID.json in the user's configuration directory, with the UID of namespace kube-system)")
	fs.DurationVar(&o.timeout, "timeout", defaultMigrateTimeout, "longest wait for the pods of one workload")
}

// addNamespaces adds the flag of the namespaces of gocrane.
func addNamespaces(fs *pflag.FlagSet, namespaces *[]string) {
	fs.StringSliceVar(namespaces, "namespace", nil, "namespaces of gocrane, separated by commas (default: those that gocrane's ClusterRoleBindings and webhooks prove)")
}

func (o *migrateOptions) addChoices(fs *pflag.FlagSet) {
	addNamespaces(fs, &o.namespaces)
	fs.StringVar(&o.manifests, "manifests", "", "file with the manifests of Crane from helm template or kustomize, in place of the built-in ones")
	fs.StringVar(&o.choices.ImageRegistry, "image-registry", "", "registry and path before the names of the images in the built-in manifests")
	fs.StringVar(&o.choices.ImageTag, "image-tag", "", "tag of the images in the built-in manifests (default: the version of crane)")
	fs.StringVar(&o.choices.EVPA, "evpa", "", "mode of EffectiveVerticalPodAutoscalers that gocrane ignored and Crane acts on: off or act")
	fs.StringVar(&o.choices.ExternalMetrics, "external-metrics", "", "where another adapter serves external metrics: keep or take")
}

// migration returns the migration and the manifests of a file; nil for the built-in ones.
func (o *migrateOptions) migration(s Streams) (*migrate.Migration, []*migrate.Object, error) {
	cluster, err := untypedClient(&o.kubernetes)
	if err != nil {
		return nil, nil, err
	}

	m := &migrate.Migration{
		Client:        cluster.client,
		ServerVersion: cluster.version,
		Clock:         clock.RealClock{},
		StateFile:     o.stateFile,
		Namespaces:    o.namespaces,
		Timeout:       o.timeout,
		Log:           func(format string, args ...any) { termtext.Fprintf(s.Err, format+"\n", args...) },
	}

	// Without a file, the built-in manifests are installed.
	if o.manifests == "" {
		return m, nil, nil
	}

	content, err := os.ReadFile(o.manifests)
	if err != nil {
		return nil, nil, usageError(err)
	}

	objects, err := manifest.ParseString(string(content))
	if err != nil {
		return nil, nil, usageError(fmt.Errorf("%s: %w", o.manifests, err))
	}

	return m, objects, nil
}

func newMigratePlanCommand(s Streams) *cobra.Command {
	o := &migrateOptions{}
	var values string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print the steps of a migration",
		Args:  noArgs,
		Long: `Plan prints the steps that crane migrate run takes, or the remaining ones of a migration that has begun, and changes nothing. With --helm-values it
writes gocrane's configuration as values of Crane's chart: helm template with these values gives the file for --manifests.`,
		Example: "  crane migrate plan --image-registry registry.example/crane --evpa off\n  crane migrate plan --image-registry registry.example/crane --helm-values values.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(checkTableOrJSON(o.output), o.choices.Validate()); err != nil {
				return usageError(err)
			}

			m, manifests, err := o.migration(s)
			if err != nil {
				return err
			}

			plan, err := m.Plan(cmd.Context(), o.choices, manifests)
			if err != nil {
				return err
			}

			if values != "" {
				content, err := plan.Settings.HelmValues(o.choices)
				if err == nil {
					err = os.WriteFile(values, content, 0o600)
				}

				if err != nil {
					return fmt.Errorf("writing values: %w", err)
				}
			}

			return renderMigratePlan(s, plan, o.output)
		},
	}

	o.addFlags(cmd.Flags())
	o.addChoices(cmd.Flags())
	cmd.Flags().StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")
	cmd.Flags().StringVar(&values, "helm-values", "", "file to which values of Crane's chart are written")

	return cmd
}

func renderMigratePlan(s Streams, plan *migrate.Plan, output string) error {
	if output == outputJSON {
		return documents.WriteJSON(s.Out, plan)
	}

	for n, step := range plan.Steps {
		pause := ""
		if step.Pause {
			pause = ", after a pause"
		}

		if _, err := termtext.Fprintf(s.Out, "%d. %s (%s%s): %s\n", n+1, step.Name, step.State, pause, step.Purpose); err != nil {
			return fmt.Errorf("writing the plan: %w", err)
		}

		for _, op := range firstNames(step.Operations) {
			if _, err := termtext.Fprintf(s.Out, "   - %s\n", op); err != nil {
				return fmt.Errorf("writing the plan: %w", err)
			}
		}
	}

	for _, f := range plan.Findings {
		if _, err := termtext.Fprintf(s.Out, "%s %s: %s\n", f.Severity, f.Reason, f.Message); err != nil {
			return fmt.Errorf("writing the plan: %w", err)
		}

		for _, object := range f.Objects {
			if _, err := termtext.Fprintf(s.Out, "   - %s\n", object); err != nil {
				return fmt.Errorf("writing the plan: %w", err)
			}
		}
	}

	for _, dropped := range plan.Settings.Dropped {
		if _, err := termtext.Fprintln(s.Out, "without counterpart:", dropped); err != nil {
			return fmt.Errorf("writing the plan: %w", err)
		}
	}

	return nil
}

func newMigrateRunCommand(s Streams) *cobra.Command {
	o := &migrateOptions{}
	var confirmed, dryRun bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Replace gocrane by Crane, step by step",
		Args:  noArgs,
		Long: `Run replaces gocrane by Crane. The backup, and everything that the steps write, is in a file on this machine, --state-file, which only its owner may
read. The progress is recorded in ConfigMap crane-migration in namespace kube-system, and is only trusted with the key in that file. A run that was
interrupted continues where it ended, on another machine with a copy of the file. It pauses before the step that removes what is left of gocrane;
--continue confirms it. Until crane migrate finish, crane migrate undo brings gocrane back.

Exit codes: 0 every step is done, or the dry run passed; 1 a step failed; 2 the flags are invalid; 4 paused.`,
		Example: "  crane migrate run --image-registry registry.example/crane --image-tag 0.1.0 --evpa off --dry-run\n  crane migrate run --manifests crane.yaml --evpa off\n  crane migrate run --continue",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.choices.Validate(); err != nil {
				return usageError(err)
			}

			m, manifests, err := o.migration(s)
			if err != nil {
				return err
			}

			return runMigration(cmd.Context(), m, o.choices, manifests, confirmed, dryRun)
		},
	}

	o.addFlags(cmd.Flags())
	o.addChoices(cmd.Flags())
	cmd.Flags().BoolVar(&confirmed, "continue", false, "continue after the pause")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "let the server check all writes and store none")

	return cmd
}

// runMigration runs a migration; a pause has an exit code of its own.
func runMigration(ctx context.Context, m *migrate.Migration, choices migrate.Options, manifests []*migrate.Object, confirmed, dryRun bool) error {
	err := m.Run(ctx, choices, manifests, confirmed, dryRun)
	if errors.Is(err, migrate.ErrPaused) {
		return &exitError{exitFailOn, err}
	}

	return err
}

func newMigrateStatusCommand(s Streams) *cobra.Command {
	o := &migrateOptions{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the steps of the recorded migration",
		Args:  noArgs,
		Long:  "Status prints the recorded migration, and the nodes on which CPU quotas of gocrane's agent may be left.\n\nExit codes: 0 a migration is recorded; 1 the API server cannot be read; 3 no migration is recorded.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkTableOrJSON(o.output); err != nil {
				return usageError(err)
			}

			m, _, err := o.migration(s)
			if err != nil {
				return err
			}

			return printMigrateStatus(cmd.Context(), s, m, o.output)
		},
	}

	o.addFlags(cmd.Flags())
	cmd.Flags().StringVarP(&o.output, "output", "o", outputTable, "output format: table or json")
	return cmd
}

// migrateStatus is the output of `crane migrate status` in JSON.
type migrateStatus struct {
	*migrate.Journal

	// NodesWithQuotas are the nodes on which CPU quotas of gocrane's agent may be left.
	NodesWithQuotas []string `json:"nodesWithQuotas,omitempty"`
}

func printMigrateStatus(ctx context.Context, s Streams, m *migrate.Migration, output string) error {
	j, unverified, err := m.Recorded(ctx)
	if err != nil {
		return err
	}

	if unverified != nil {
		termtext.Fprintf(s.Err, "the recorded migration is not verified: %v\n", unverified)
	}

	nodes, nodesErr := migrate.NodesWithQuotas(ctx, m.Client)
	if nodesErr != nil {
		termtext.Fprintf(s.Err, "nodes with CPU quotas of gocrane's agent are not known: %v\n", nodesErr)
	}

	switch {
	case output == outputJSON && j != nil:
		return documents.WriteJSON(s.Out, migrateStatus{j, nodes})
	case j != nil:
		err = printMigrateSteps(s.Out, j)
	default:
		err = &exitError{exitNoResult, errors.New("no migration is recorded")}
	}

	if _, printErr := io.WriteString(s.Out, quotaNote(nodes)); printErr != nil {
		return fmt.Errorf("writing the status: %w", printErr)
	}

	return err
}

// quotaNote names the nodes on which CPU quotas of gocrane's agent may be left; empty for none.
func quotaNote(nodes []string) string {
	if len(nodes) == 0 {
		return ""
	}

	return fmt.Sprintf("CPU quotas of gocrane's agent may be left on %d nodes until crane-agent runs there with --enforce=cpu-throttle: %s\n", len(nodes), strings.Join(firstNames(nodes), ", "))
}

func printMigrateSteps(w io.Writer, j *migrate.Journal) error {
	t := texttable.New("STEP", "STATE", "SINCE")
	for _, step := range j.Steps {
		at := emptyCell
		if !step.At.IsZero() {
			at = step.At.Format(time.RFC3339)
		}

		t.AppendRow(table.Row{step.Name, step.State, at})
	}

	what := "migration"
	if j.Options.Away {
		what = "removal of Crane"
	}

	_, err := termtext.Fprintf(w, "%s of %s: %s\n%s\n", what, j.Started.Format(time.RFC3339), j.Phase, termtext.Trusted(t.Render()))
	return err
}

func newMigrateUndoCommand(s Streams) *cobra.Command {
	o := &migrateOptions{}
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "Bring gocrane back, or Crane after crane migrate away",
		Args:  noArgs,
		Long:  "Undo undoes the steps of the recorded migration in reverse order, from the backup in the state file, and removes its records. Objects of users stay as they\nare. It can be interrupted and repeated. It needs the state file of the operator who started the migration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, _, err := o.migration(s)
			if err != nil {
				return err
			}

			return m.Undo(cmd.Context())
		},
	}

	o.addFlags(cmd.Flags())
	return cmd
}

func newMigrateFinishCommand(s Streams) *cobra.Command {
	o := &migrateOptions{}
	var yes bool
	cmd := &cobra.Command{
		Use:   "finish",
		Short: "Remove the backup: there is no way back afterward",
		Args:  noArgs,
		Long:  "Finish removes the state file with the backup, and the journal of a migration of which every step is done. It cannot be undone. It names the nodes on which CPU quotas of\ngocrane's agent may be left; crane-agent restores them afterward as well.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return usageError(errors.New("finish cannot be undone: confirm it with --yes, after crane migrate export if you want to keep a copy"))
			}

			m, _, err := o.migration(s)
			if err != nil {
				return err
			}

			nodes, err := migrate.NodesWithQuotas(cmd.Context(), m.Client)
			if err == nil {
				err = m.Finish(cmd.Context())
			}
			if err == nil {
				_, err = io.WriteString(s.Out, quotaNote(nodes))
			}

			return err
		},
	}

	o.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm that there is no way back")
	return cmd
}
