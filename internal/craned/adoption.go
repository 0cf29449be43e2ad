// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/controller/adoption"
	"crane.io/crane/internal/controller/targets"
)

// adoptionController is the name of what brings recommended values to their targets.
const adoptionController = "adoption"

// addTargets adds the index by which the Recommendations of a target are found.
func addTargets(ctx context.Context, p *parts) error {
	return targets.AddIndex(ctx, p.mgr.GetFieldIndexer()) //nolint:wrapcheck // It says what was indexed.
}

// addAdoption adds what brings recommended values to their targets.
func addAdoption(_ context.Context, p *parts) error {
	if err := adoption.AddToManager(p.mgr, adoption.Config{Clock: clock.RealClock{}}); err != nil {
		return fmt.Errorf("adding adoption: %w", err)
	}
	return nil
}
