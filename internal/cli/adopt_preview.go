// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
)

// previewReader previews adoptions with the settings and the records of the running craned.
type previewReader struct {
	client client.Client
	// cranedNamespace is the namespace of craned's Deployment and of its OOM record.
	cranedNamespace string
	// adoption has the windows of the changed flags; flags are the flags of the command, nil for none.
	adoption targetsnapshot.Options
	flags    *pflag.FlagSet
	// notes gets a line for each thing that cannot be read.
	notes io.Writer
}

// note prints a line about something that cannot be read.
func (p previewReader) note(format string, args ...any) {
	fmt.Fprintf(p.notes, format+"\n", args...)
}

// preview computes the next requests of each selected Recommendation; all are those of the namespace.
func (p previewReader) preview(ctx context.Context, selected, all []analysisv1alpha1.Recommendation) ([]targetsnapshot.Preview, error) {
	settings, err := p.settings(ctx)
	if err != nil {
		return nil, err
	}

	previewer := targetsnapshot.Previewer{
		SnapshotReader:  targetsnapshot.SnapshotReader{Live: p.client, Kills: p.oomKills(ctx)},
		Settings:        settings,
		Budgets:         p.loadBudgets(ctx),
		SystemNamespace: p.cranedNamespace,
	}

	var out []targetsnapshot.Preview
	for i := range selected {
		one, err := previewer.Preview(ctx, &selected[i], all, time.Now())
		if err != nil {
			return nil, fmt.Errorf("recommendation %s/%s: %w", selected[i].Namespace, selected[i].Name, err)
		}

		out = append(out, one)
	}

	return out, nil
}
