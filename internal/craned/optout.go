// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"

	"crane.io/crane/internal/adoption/optoutlist"
	"crane.io/crane/internal/component/wallclock"
)

// addOptOuts adds the publisher of the workloads that have opted out, which agents read, and the caches behind it.
func addOptOuts(ctx context.Context, d *dependencies) error {
	// The webhook of evictions reads them on every replica.
	if err := optoutlist.Watch(ctx, d.mgr.GetCache()); err != nil {
		return err
	}

	err := d.mgr.Add(optoutlist.Publisher{
		Namespace: d.Namespace,
		Cache:     d.mgr.GetCache(),
		Client:    d.mgr.GetClient(),
		Clock:     wallclock.New(),
	})
	if err != nil {
		return fmt.Errorf("adding the list of workloads that have opted out: %w", err)
	}

	return nil
}
