// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promserver

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// database wraps the tsdb so that the API keeps its handle while the tsdb is closed and reopened to write history as
// blocks.
type database struct {
	dir  string
	opts *Options

	mu  sync.RWMutex
	db  *tsdb.DB             // nil while closed
	reg *prometheus.Registry // of the open tsdb: a tsdb registers its metrics once
}

func (d *database) open() error {
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return fmt.Errorf("promserver: data directory: %w", err)
	}
	o := tsdb.DefaultOptions()
	o.RetentionDuration = d.opts.Retention.Milliseconds()
	// The head is cut every two hours; blocks are not compacted, to save CPU.
	o.MaxBlockDuration = o.MinBlockDuration
	o.StripeSize = 1 << 10
	reg := prometheus.NewRegistry()
	db, err := tsdb.Open(d.dir, d.opts.Logger, reg, o, nil)
	if err != nil {
		return fmt.Errorf("promserver: open %s: %w", d.dir, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.db, d.reg = db, reg
	return nil
}

// close is idempotent.
func (d *database) close() error {
	d.mu.Lock()
	db := d.db
	d.db, d.reg = nil, nil
	d.mu.Unlock()
	if db == nil {
		return nil
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("promserver: close %s: %w", d.dir, err)
	}
	return nil
}

func (d *database) get() (*tsdb.DB, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.db == nil {
		return nil, tsdb.ErrNotReady
	}
	return d.db, nil
}

// flush writes the head to blocks, so that blocks may be written after it.
func (d *database) flush() error {
	db, err := d.get()
	if err != nil {
		return err
	}
	head := db.Head()
	if head.NumSeries() == 0 || head.MinTime() > head.MaxTime() {
		return nil
	}
	if err := db.CompactHead(tsdb.NewRangeHead(head, head.MinTime(), head.MaxTime())); err != nil {
		return fmt.Errorf("promserver: cut the head: %w", err)
	}
	return nil
}

// last returns the time of the newest sample, or false without samples.
func (d *database) last() (time.Time, bool) {
	db, err := d.get()
	if err != nil {
		return time.Time{}, false
	}
	newest, found := int64(0), false
	if h := db.Head(); h.NumSeries() > 0 && h.MaxTime() >= h.MinTime() {
		newest, found = h.MaxTime(), true
	}
	for _, m := range db.BlockMetas() {
		if !found || m.MaxTime-1 > newest {
			newest, found = m.MaxTime-1, true
		}
	}
	return time.UnixMilli(newest).UTC(), found
}

// Gather implements prometheus.Gatherer with the metrics of the open tsdb.
func (d *database) Gather() ([]*dto.MetricFamily, error) {
	d.mu.RLock()
	reg := d.reg
	d.mu.RUnlock()
	if reg == nil {
		return nil, nil
	}
	return reg.Gather()
}

// Querier implements storage.Queryable.
func (d *database) Querier(mint, maxt int64) (storage.Querier, error) {
	db, err := d.get()
	if err != nil {
		return nil, err
	}
	return db.Querier(mint, maxt)
}

// ChunkQuerier implements storage.ChunkQueryable.
func (d *database) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	db, err := d.get()
	if err != nil {
		return nil, err
	}
	return db.ChunkQuerier(mint, maxt)
}

// ExemplarQuerier implements storage.ExemplarQueryable.
func (d *database) ExemplarQuerier(ctx context.Context) (storage.ExemplarQuerier, error) {
	db, err := d.get()
	if err != nil {
		return nil, err
	}
	return db.ExemplarQuerier(ctx)
}

// CleanTombstones implements v1.TSDBAdminStats.
func (d *database) CleanTombstones() error {
	db, err := d.get()
	if err != nil {
		return err
	}
	return db.CleanTombstones()
}

// Delete implements v1.TSDBAdminStats.
func (d *database) Delete(ctx context.Context, mint, maxt int64, ms ...*labels.Matcher) error {
	db, err := d.get()
	if err != nil {
		return err
	}
	return db.Delete(ctx, mint, maxt, ms...)
}

// Snapshot implements v1.TSDBAdminStats.
func (d *database) Snapshot(dir string, withHead bool) error {
	db, err := d.get()
	if err != nil {
		return err
	}
	return db.Snapshot(dir, withHead)
}

// Stats implements v1.TSDBAdminStats.
func (d *database) Stats(statsByLabelName string, limit int) (*tsdb.Stats, error) {
	db, err := d.get()
	if err != nil {
		return nil, err
	}
	return db.Head().Stats(statsByLabelName, limit), nil
}

// WALReplayStatus implements v1.TSDBAdminStats: the log is replayed before the server listens.
func (d *database) WALReplayStatus() (tsdb.WALReplayStatus, error) {
	_, err := d.get()
	return tsdb.WALReplayStatus{}, err
}

// BlockMetas implements v1.TSDBAdminStats.
func (d *database) BlockMetas() ([]tsdb.BlockMeta, error) {
	db, err := d.get()
	if err != nil {
		return nil, err
	}
	return db.BlockMetas(), nil
}
