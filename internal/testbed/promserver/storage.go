// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
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
		return fmt.Errorf("promserver: creating the data directory: %w", err)
	}

	o := tsdb.DefaultOptions()
	o.RetentionDuration = d.opts.Retention.Milliseconds()

	// The head is cut every two hours; blocks are not compacted, to save CPU.
	o.MaxBlockDuration = o.MinBlockDuration
	o.StripeSize = 1 << 10

	reg := prometheus.NewRegistry()
	db, err := tsdb.Open(d.dir, d.opts.Logger, reg, o, nil)
	if err != nil {
		return fmt.Errorf("promserver: opening %s: %w", d.dir, err)
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.db = db
	d.reg = reg
	return nil
}

// close is idempotent.
func (d *database) close() error {
	d.mu.Lock()
	db := d.db
	d.db = nil
	d.reg = nil
	d.mu.Unlock()

	if db == nil {
		return nil
	}

	if err := db.Close(); err != nil {
		return fmt.Errorf("promserver: closing %s: %w", d.dir, err)
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
		return fmt.Errorf("promserver: cutting the head: %w", err)
	}

	return nil
}

// last returns the time of the newest sample, or false without samples.
func (d *database) last() (time.Time, bool) {
	db, err := d.get()
	if err != nil {
		return time.Time{}, false
	}

	newest := int64(0)
	found := false
	if h := db.Head(); h.NumSeries() > 0 && h.MaxTime() >= h.MinTime() {
		newest = h.MaxTime()
		found = true
	}

	for _, m := range db.BlockMetas() {
		if !found || m.MaxTime-1 > newest {
			newest = m.MaxTime - 1
			found = true
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

// Sample is one live sample of a series.
type Sample struct {
	// Labels include __name__.
	Labels labels.Labels
	// Value may be NaN, which is stored as such.
	Value float64
}

// AppendStats counts live samples since Open.
type AppendStats struct {
	// Appended were stored, including the Stale staleness markers.
	Appended, Stale uint64
	// OutOfOrder, Duplicate and TooOld were rejected by the database; Dropped arrived while the server was stopped.
	OutOfOrder, Duplicate, TooOld, Dropped uint64
}

// liveSeries is a series of the last batch of its source.
type liveSeries struct {
	labels labels.Labels
	ref    storage.SeriesRef
}

// StaleMarker returns the value that ends a series, as Prometheus writes it when a target no longer exposes the series.
func StaleMarker() float64 { return math.Float64frombits(value.StaleNaN) }

// Append stores a batch of samples with the timestamp ts. A series that the previous batch of the same source contained
// and this one lacks gets a staleness marker. Samples that the database rejects because of their time are counted and
// do not fail the batch.
func (s *Server) Append(ctx context.Context, source string, ts time.Time, batch []Sample) error {
	s.appendMu.Lock()
	defer s.appendMu.Unlock()

	if !s.Running() {
		s.stats.Dropped += uint64(len(batch))
		return nil
	}

	db, err := s.data.get()
	if err != nil {
		return fmt.Errorf("promserver: appending: %w", err)
	}

	app := db.Appender(ctx)
	ms := ts.UnixMilli()

	// References of the last batch save the lookup of the series by labels.
	before := s.lastBatch[source]

	now := make(map[uint64]liveSeries, len(batch))
	stats := s.stats
	for _, sample := range batch {
		hash := sample.Labels.Hash()
		ref, err := app.Append(before[hash].ref, sample.Labels, ms, sample.Value)
		if err := stats.count(err); err != nil {
			return fmt.Errorf("promserver: appending %s: %w", sample.Labels, errors.Join(err, app.Rollback()))
		}

		now[hash] = liveSeries{labels: sample.Labels, ref: ref}
	}

	// As in a scrape, a series that is no longer exposed ends at once.
	for hash, ended := range before {
		if _, ok := now[hash]; ok {
			continue
		}

		_, err := app.Append(ended.ref, ended.labels, ms, StaleMarker())
		if err == nil {
			stats.Stale++
		}

		if err := stats.count(err); err != nil {
			return fmt.Errorf("promserver: ending %s: %w", ended.labels, errors.Join(err, app.Rollback()))
		}
	}

	if err := app.Commit(); err != nil {
		return fmt.Errorf("promserver: committing %s: %w", source, err)
	}

	s.lastBatch[source] = now
	s.stats = stats
	s.targets.report(ts)

	return nil
}

// count counts the result of one append; it returns errors that are not about the sample's time.
func (a *AppendStats) count(err error) error {
	switch {
	case err == nil:
		a.Appended++
	case errors.Is(err, storage.ErrOutOfOrderSample):
		a.OutOfOrder++
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		a.Duplicate++
	case errors.Is(err, storage.ErrOutOfBounds), errors.Is(err, storage.ErrTooOldSample):
		a.TooOld++
	default:
		return err
	}

	return nil
}

// AppendHistogram appends one sample of a series of native histograms, which a real server has beside others.
func (s *Server) AppendHistogram(ctx context.Context, ts time.Time, identity labels.Labels) error {
	db, err := s.data.get()
	if err != nil {
		return err
	}

	h := &histogram.Histogram{
		Schema:          1,
		Count:           3,
		Sum:             4,
		PositiveSpans:   []histogram.Span{{Offset: 0, Length: 2}},
		PositiveBuckets: []int64{1, 1},
	}

	app := db.Appender(ctx)
	if _, err := app.AppendHistogram(0, identity, ts.UnixMilli(), h, nil); err != nil {
		return errors.Join(fmt.Errorf("promserver: appending a histogram of %s: %w", identity, err), app.Rollback())
	}

	return app.Commit()
}

// AppendStats returns the counts so far.
func (s *Server) AppendStats() AppendStats {
	s.appendMu.Lock()
	defer s.appendMu.Unlock()

	return s.stats
}
