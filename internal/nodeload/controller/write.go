// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

// FieldManager is the field manager of the annotations.
const FieldManager = "craned-nodeload"

// Patcher sends a JSON merge patch of a node.
type Patcher interface {
	PatchNode(ctx context.Context, name string, patch []byte) error
}

// mergePatch returns the merge patch. The UID is a precondition: a node recreated under the name does not get the
// load of the old one.
func mergePatch(uid types.UID, annotations map[string]string) ([]byte, error) {
	type meta struct {
		UID         types.UID         `json:"uid,omitempty"`
		Annotations map[string]string `json:"annotations"`
	}

	data, err := json.Marshal(struct {
		Metadata meta `json:"metadata"`
	}{meta{uid, annotations}})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}

	return data, nil
}

// write sends the patches of a round concurrently. A deleted or recreated node is not an error.
func (c *Controller) write(ctx context.Context, nodes []node, patches []patch) {
	log := ctrl.LoggerFrom(ctx).WithName("nodeload")
	var next, failed atomic.Int64
	var first atomic.Pointer[error]

	// The workers take the next patch each; a failure does not stop the others.
	var wg sync.WaitGroup
	for range min(c.cfg.Workers, len(patches)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(patches) {
					return
				}

				if err := c.send(ctx, &nodes[patches[i].node], &patches[i]); err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}

	wg.Wait()
	if ctx.Err() != nil {
		return
	}

	if err := first.Load(); err != nil && !c.writeFails {
		log.Error(*err, "writing loads, further failures are only counted until a round succeeds", "failed", failed.Load(), "total", len(patches))
	}
	c.writeFails = failed.Load() > 0
}

func (c *Controller) send(ctx context.Context, n *node, p *patch) error {
	log := ctrl.LoggerFrom(ctx).WithName("nodeload")
	if c.cfg.DryRun {
		log.Info("would write (dry run)", "node", n.name, "annotations", p.annotations, "causes", p.causes)
		c.cfg.Metrics.patched("dry-run", p.causes)
		return nil
	}

	data, err := mergePatch(n.uid, p.annotations)
	if err != nil {
		return err
	}

	switch err := c.cfg.Patches.PatchNode(ctx, n.name, data); {
	case err == nil:
		log.V(1).Info("wrote node", "node", n.name, "annotations", p.annotations, "causes", p.causes)
		c.cfg.Metrics.patched("written", p.causes)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		c.cfg.Metrics.patched("gone", nil)
	default:
		c.cfg.Metrics.patched("failed", nil)
		return fmt.Errorf("patching node %s: %w", n.name, err)
	}

	return nil
}
