// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
)

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
		return fmt.Errorf("promserver: append: %w", err)
	}
	app := db.Appender(ctx)
	ms, before, now := ts.UnixMilli(), s.lastBatch[source], make(map[uint64]liveSeries, len(batch))
	stats := s.stats
	for _, sample := range batch {
		hash := sample.Labels.Hash()
		ref, err := app.Append(before[hash].ref, sample.Labels, ms, sample.Value)
		if err := stats.count(err); err != nil {
			return fmt.Errorf("promserver: append %s: %w", sample.Labels, errors.Join(err, app.Rollback()))
		}
		now[hash] = liveSeries{labels: sample.Labels, ref: ref}
	}
	for hash, gone := range before {
		if _, ok := now[hash]; ok {
			continue
		}
		_, err := app.Append(gone.ref, gone.labels, ms, StaleMarker())
		if err == nil {
			stats.Stale++
		}
		if err := stats.count(err); err != nil {
			return fmt.Errorf("promserver: end %s: %w", gone.labels, errors.Join(err, app.Rollback()))
		}
	}
	if err := app.Commit(); err != nil {
		return fmt.Errorf("promserver: commit %s: %w", source, err)
	}
	s.lastBatch[source], s.stats = now, stats
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

// AppendStats returns the counts so far.
func (s *Server) AppendStats() AppendStats {
	s.appendMu.Lock()
	defer s.appendMu.Unlock()
	return s.stats
}
