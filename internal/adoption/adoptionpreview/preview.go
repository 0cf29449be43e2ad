// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adoptionpreview computes the requests that the running craned would send to adopt recommendations.
package adoptionpreview

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/foreignvpa"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/component/termtext"
)

// Reader previews adoptions with the settings and the records of the running craned.
type Reader struct {
	Client client.Client
	// CranedNamespace is the namespace of craned's Deployment and of its OOM record.
	CranedNamespace string
	// Adoption has the windows of the changed flags; flags are the flags of the command, nil for none.
	Adoption targetsnapshot.Options
	Flags    *pflag.FlagSet
	// Notes gets a line for each thing that cannot be read.
	Notes io.Writer
}

// notef prints a line about something that cannot be read.
func (r Reader) notef(format string, args ...any) {
	termtext.Fprintf(r.Notes, format+"\n", args...)
}

// Preview computes the next requests of each selected Recommendation; all are those of the namespace.
func (r Reader) Preview(ctx context.Context, selected, all []analysisv1alpha1.Recommendation) ([]targetsnapshot.Preview, error) {
	settings, err := r.settings(ctx)
	if err != nil {
		return nil, err
	}

	previewer := targetsnapshot.Previewer{
		SnapshotReader: targetsnapshot.SnapshotReader{
			Live:  r.Client,
			Kills: r.oomKills(ctx),
			VPAs:  vpaReader{foreignvpa.NewFinder(r.Client, r.Client.RESTMapper()), r.notef},
		},
		Settings:        settings,
		Budgets:         r.loadBudgets(ctx),
		SystemNamespace: r.CranedNamespace,
	}

	var out []targetsnapshot.Preview
	for i := range selected {
		preview, err := previewer.Preview(ctx, &selected[i], all, time.Now())
		if err != nil {
			return nil, fmt.Errorf("recommendation %s/%s: %w", selected[i].Namespace, selected[i].Name, err)
		}

		out = append(out, preview)
	}

	return out, nil
}
