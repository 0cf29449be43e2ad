// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/migrate"
)

const migrateLong = `Migrate moves a cluster from gocrane to Crane: check shows what there is and what becomes of it, export writes it to files, run replaces it
step by step, and undo brings gocrane back at any point before finish. The backup is in a file of the operator and the progress in the cluster, so
that a run that was interrupted continues where it ended.`

// newMigrateCommand returns `crane migrate`.
func newMigrateCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move a cluster from gocrane to Crane and back, or away from Crane",
		Long:  migrateLong,
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	cmd.AddCommand(newMigrateCheckCommand(s), newMigrateExportCommand(s), newMigratePlanCommand(s), newMigrateRunCommand(s), newMigrateStatusCommand(s), newMigrateUndoCommand(s),
		newMigrateFinishCommand(s), newMigrateAwayCommand(s))
	return cmd
}

const migrateCheckLong = `Check prints what a gocrane installation has in the cluster, by Helm or by YAML, and what a migration makes of each object.
It changes nothing and needs the verbs get and list alone; what it must not read is listed. It also shows which objects of the VPA, Goldilocks,
KEDA and prometheus-adapter have a counterpart in Crane.

Exit codes: 0 gocrane is installed and nothing needs a decision; 1 the API server cannot be read; 2 the flags are invalid; 3 gocrane is not
installed; 4 something needs a decision.`

// clusterAccess is a client and the version of the API server.
type clusterAccess struct {
	client  client.Client
	version string
}

// untypedClient returns a client of all kinds, and the version of the API server.
func untypedClient(k *clusteraccess.Access) (clusterAccess, error) {
	config, err := k.Config()
	if err != nil {
		return clusterAccess{}, err
	}

	config.WarningHandlerWithContext = rest.NoWarnings{}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return clusterAccess{}, fmt.Errorf("API server %s: %w", config.Host, err)
	}

	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return clusterAccess{}, fmt.Errorf("API server %s: %w", config.Host, err)
	}

	v, err := d.ServerVersion()
	if err != nil {
		return clusterAccess{}, fmt.Errorf("API server %s: %w", config.Host, err)
	}

	return clusterAccess{c, v.GitVersion}, nil
}

func newMigrateCheckCommand(s Streams) *cobra.Command {
	var access clusteraccess.Access
	var output string
	var namespaces []string

	cmd := &cobra.Command{
		Use:     "check",
		Short:   "Print what gocrane has in the cluster and what becomes of it",
		Long:    migrateCheckLong,
		Args:    noArgs,
		Example: "  crane migrate check\n  crane migrate check -o html > check.html",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{outputTable, outputJSON, outputHTML}, output) {
				return usageError(fmt.Errorf("--output %q: want %s, %s or %s", output, outputTable, outputJSON, outputHTML))
			}

			return runMigrateCheck(cmd.Context(), s, &access, namespaces, output)
		},
	}

	addKubernetesFlags(cmd.Flags(), &access)
	addNamespaces(cmd.Flags(), &namespaces)
	cmd.Flags().StringVarP(&output, "output", "o", outputTable, "output format: table, json or html")

	return cmd
}

func runMigrateCheck(ctx context.Context, s Streams, access *clusteraccess.Access, namespaces []string, output string) error {
	cluster, err := untypedClient(access)
	if err != nil {
		return err
	}

	report, err := migrate.Check(ctx, cluster.client, cluster.version, namespaces...)
	if err != nil {
		return fmt.Errorf("reading the cluster: %w", err)
	}

	render := map[string]func() error{
		outputTable: func() error { return renderMigrateCheck(s.Out, report) },
		outputJSON:  func() error { return documents.WriteJSON(s.Out, report) },
		outputHTML:  func() error { return executeTemplate(s.Out, "migrate", migratePage(report)) },
	}[output]

	if err := render(); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}

	// The exit code lets scripts ask whether a migration can start.
	switch n := report.Decisions(); {
	case !report.Installed:
		return &exitError{exitNoResult, errors.New("gocrane is not installed")}
	case n > 0:
		return &exitError{exitFailOn, fmt.Errorf("%d findings need a decision", n)}
	}

	return nil
}

func newMigrateExportCommand(s Streams) *cobra.Command {
	var access clusteraccess.Access
	var choices migrate.Options
	var namespaces []string

	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Write everything of gocrane to files",
		Long: `Export writes every object of a gocrane installation to a directory: below backup/ as the API server stores it, with managedFields and the records of
Helm, and below import/ the objects of users and their namespaces without what a server sets, for another cluster with Crane:
kubectl apply -R -f DIR/import. EffectiveVerticalPodAutoscalers that gocrane ignored and Crane acts on are Off there, unless --evpa is act.
values.yaml has gocrane's configuration as values of Crane's chart. Export changes nothing in the cluster. The files contain Secrets,
without tokens of ServiceAccounts.`,
		Args:    func(cmd *cobra.Command, args []string) error { return usageError(cobra.ExactArgs(1)(cmd, args)) },
		Example: "  crane migrate export gocrane-backup",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := choices.Validate(); err != nil {
				return usageError(err)
			}

			cluster, err := untypedClient(&access)
			if err != nil {
				return err
			}

			inv, err := migrate.ReadInventory(cmd.Context(), cluster.client, namespaces...)
			if err != nil {
				return fmt.Errorf("reading the cluster: %w", err)
			}

			if err := inv.Proven(); err != nil {
				return err
			}

			if !inv.Installed() {
				return &exitError{exitNoResult, errors.New("gocrane is not installed")}
			}

			if len(inv.Unreadable) > 0 {
				return fmt.Errorf("an export would be incomplete: %v", inv.Unreadable)
			}

			written, err := migrate.Export(inv, args[0], choices)
			if err != nil {
				return err
			}

			_, err = termtext.Fprintf(s.Out, "%d objects in %s/backup, %d of them for another cluster in %s/import\n", written.Backup, args[0], written.Import, args[0])
			for _, name := range written.Held {
				if err == nil {
					_, err = termtext.Fprintf(s.Out, "%s is Off in %s/import: gocrane ignored its mode, Crane acts on it; --evpa=act keeps it\n", name, args[0])
				}
			}

			return err
		},
	}

	addKubernetesFlags(cmd.Flags(), &access)
	addNamespaces(cmd.Flags(), &namespaces)
	cmd.Flags().StringVar(&choices.EVPA, "evpa", migrate.EVPAOff, "EffectiveVerticalPodAutoscalers that gocrane ignored and Crane acts on, in the files for another cluster: off or act")
	cmd.Flags().StringVar(&choices.ImageRegistry, "image-registry", "", "registry and path before the names of the images, in the values of the chart")
	cmd.Flags().StringVar(&choices.ImageTag, "image-tag", "", "tag of the images, in the values of the chart")

	return cmd
}
