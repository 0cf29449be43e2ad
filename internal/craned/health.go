// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// sourceCheckInterval is the time between two looks at the data source.
	sourceCheckInterval = 15 * time.Second
	// sourceCheckTimeout is what one look may take. A source that answers nothing simple within it serves no history.
	sourceCheckTimeout = 10 * time.Second
	// cacheCheckTimeout is what readiness waits for caches; it is asked again soon.
	cacheCheckTimeout = time.Second
)

// sourceHealth asks the data source from time to time whether it answers, so that readiness can say so without a
// query for each probe. It runs on every replica, standbys too.
type sourceHealth struct {
	// ask is a cheap question to the source.
	ask func(context.Context) error

	mu  sync.Mutex
	err error
}

func newSourceHealth(ask func(context.Context) error) *sourceHealth {
	return &sourceHealth{ask: ask, err: errors.New("not asked yet")}
}

// Start asks until ctx ends.
func (h *sourceHealth) Start(ctx context.Context) error {
	tick := time.NewTicker(sourceCheckInterval)
	defer tick.Stop()
	for {
		h.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// NeedLeaderElection says that the check also runs on a standby, whose readiness counts as well.
func (h *sourceHealth) NeedLeaderElection() bool { return false }

func (h *sourceHealth) look(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, sourceCheckTimeout)
	defer cancel()
	err := h.ask(asking)
	if ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	changed := (err == nil) != (h.err == nil)
	h.err = err
	h.mu.Unlock()
	if !changed {
		return
	}
	if err != nil {
		log.FromContext(ctx).Info("Data source does not answer", "reason", err.Error())
		return
	}
	log.FromContext(ctx).Info("Data source answers")
}

// Check fails with the source's last error.
func (h *sourceHealth) Check(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return fmt.Errorf("data source: %w", h.err)
	}
	return nil
}

// cachesSynced fails until every informer that was started has its first list.
func cachesSynced(c cache.Cache) healthz.Checker {
	return func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), cacheCheckTimeout)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("caches are not synced")
		}
		return nil
	}
}
