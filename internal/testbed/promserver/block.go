// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/tombstones"
)

const (
	// samplesPerChunk is Prometheus' target size.
	samplesPerChunk = 120
	// tmpSuffix marks an unfinished block, which Prometheus removes.
	tmpSuffix = ".tmp-for-creation"
	// buffers bounds the series between filling and encoding.
	buffers = 8
	// maxConstants bounds the number of constant values whose chunks are cached.
	maxConstants = 256
)

// block writes one window of a history.
type block struct {
	dir      string
	grid     Grid
	first, n int
	series   []Series
	symbols  []string
	// written marks the series that have a sample in any block.
	written []bool

	chunks *chunks.Writer
	index  *index.Writer
	meta   tsdb.BlockMeta
	// pool and metas are reused for each series.
	pool  []*chunkenc.XORChunk
	metas []chunks.Meta
	// constants caches the chunks of series with one value throughout by the bits of the value: most series of a
	// cluster are constant and share a few values.
	constants map[uint64][]chunks.Meta
}

// filledSeries is a series of the block with its values.
type filledSeries struct {
	i      int
	values []float64
}

func (b *block) write(ctx context.Context, stats *BackfillStats) (err error) {
	id, err := ulid.New(ulid.Timestamp(b.grid.time(b.first+b.n)), rand.Reader)
	if err != nil {
		return fmt.Errorf("generating the block ID: %w", err)
	}

	// The block is renamed once it is complete; Prometheus removes unfinished ones.
	final := filepath.Join(b.dir, id.String())
	tmp := final + tmpSuffix
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()

	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}

	b.meta = tsdb.BlockMeta{
		ULID:       id,
		Version:    1,
		MinTime:    b.grid.time(b.first).UnixMilli(),
		MaxTime:    b.grid.time(b.first+b.n-1).UnixMilli() + 1,
		Compaction: tsdb.BlockMetaCompaction{Level: 1, Sources: []ulid.ULID{id}},
	}

	if err := b.populate(ctx, tmp); err != nil {
		return err
	}

	if b.meta.Stats.NumSamples == 0 {
		return nil
	}

	if err := b.writeMeta(tmp); err != nil {
		return err
	}

	if err := os.Rename(tmp, final); err != nil {
		return err
	}

	bytes, err := dirSize(final)
	if err != nil {
		return err
	}

	stats.Blocks++
	stats.Bytes += bytes
	stats.Samples += b.meta.Stats.NumSamples
	stats.Chunks += b.meta.Stats.NumChunks

	return nil
}

// populate writes the chunks and the index of every series.
func (b *block) populate(ctx context.Context, tmp string) (err error) {
	if b.chunks, err = chunks.NewWriter(filepath.Join(tmp, "chunks")); err != nil {
		return fmt.Errorf("creating the chunk writer: %w", err)
	}
	defer func() { err = errors.Join(err, b.chunks.Close()) }()

	if b.index, err = index.NewWriter(ctx, filepath.Join(tmp, "index")); err != nil {
		return fmt.Errorf("creating the index writer: %w", err)
	}
	defer func() { err = errors.Join(err, b.index.Close()) }()

	for _, s := range b.symbols {
		if err := b.index.AddSymbol(s); err != nil {
			return fmt.Errorf("adding symbol %q: %w", s, err)
		}
	}

	b.constants = map[uint64][]chunks.Meta{}
	ctx, cancel := context.WithCancel(ctx)
	free := make(chan []float64, buffers)
	ready := make(chan filledSeries, buffers)

	for range buffers {
		free <- make([]float64, b.n)
	}

	go b.fill(ctx, free, ready)
	defer func() {
		cancel()
		for range ready { // wait for fill, which may still call Series.Fill
		}
	}()

	for f := range ready {
		if err := b.add(f.i, f.values); err != nil {
			return fmt.Errorf("adding series %s: %w", b.series[f.i].Labels, err)
		}

		free <- f.values
	}

	return ctx.Err()
}

// fill computes the values of each series while earlier ones are encoded. It closes ready when it returns.
func (b *block) fill(ctx context.Context, free <-chan []float64, ready chan<- filledSeries) {
	defer close(ready)

	for i, s := range b.series {
		select {
		case <-ctx.Done():
			return
		case values := <-free:
			s.Fill(values, b.first)
			ready <- filledSeries{i: i, values: values} // never blocks: its capacity is the number of buffers
		}
	}
}

// add encodes the values and writes them as series number i of the block; a series without samples is skipped.
func (b *block) add(i int, values []float64) error {
	metas, err := b.encode(values)
	if err != nil || len(metas) == 0 {
		return err
	}

	if err := b.chunks.WriteChunks(metas...); err != nil {
		return err
	}

	if err := b.index.AddSeries(storage.SeriesRef(i), b.series[i].Labels, metas...); err != nil {
		return err
	}

	b.written[i] = true
	st := &b.meta.Stats
	st.NumSeries++
	st.NumChunks += uint64(len(metas))
	for _, m := range metas {
		st.NumSamples += uint64(m.Chunk.NumSamples())
	}

	st.NumFloatSamples = st.NumSamples
	return nil
}

// encode returns the chunks of values, valid until the next call.
func (b *block) encode(values []float64) ([]chunks.Meta, error) {
	if !constant(values) {
		b.metas = b.metas[:0]
		return b.metas, b.compress(values)
	}

	bits := math.Float64bits(values[0])
	if ready, ok := b.constants[bits]; ok {
		return ready, nil
	}

	b.metas = b.metas[:0]
	if err := b.compress(values); err != nil {
		return nil, err
	}

	if len(b.constants) < maxConstants {
		// Cached chunks must not be reused: remove them from the pool.
		b.constants[bits] = slices.Clone(b.metas)
		b.pool = b.pool[min(len(b.metas), len(b.pool)):]
	}

	return b.metas, nil
}

// constant reports whether all values are the same sample.
func constant(values []float64) bool {
	first := math.Float64bits(values[0])
	if isGap(values[0]) {
		return false
	}

	for _, v := range values {
		if math.Float64bits(v) != first {
			return false
		}
	}

	return true
}

// compress encodes values to b.metas.
func (b *block) compress(values []float64) error {
	var (
		app  chunkenc.Appender
		open *chunks.Meta
		n    int // samples of the open chunk
		err  error
	)

	// A gap adds no sample but takes its time.
	t := b.meta.MinTime

	step := b.grid.Step.Milliseconds()
	for _, v := range values {
		if !isGap(v) {
			if open == nil || n == samplesPerChunk {
				if app, err = b.chunk().Appender(); err != nil {
					return err
				}

				open = &b.metas[len(b.metas)-1]
				n = 0
				open.MinTime = t
			}

			app.Append(0, t, v)
			open.MaxTime = t
			n++
		}

		t += step
	}

	return nil
}

// chunk appends an empty chunk to b.metas, reusing the memory of an earlier one.
func (b *block) chunk() *chunkenc.XORChunk {
	n := len(b.metas)
	if n == len(b.pool) {
		b.pool = append(b.pool, chunkenc.NewXORChunk())
	}

	c := b.pool[n]
	head := c.Bytes()[:2]
	clear(head)
	c.Reset(head)
	b.metas = append(b.metas, chunks.Meta{Chunk: c})

	return c
}

// writeMeta writes meta.json and an empty tombstones file.
func (b *block) writeMeta(tmp string) error {
	meta, err := json.MarshalIndent(&b.meta, "", "\t")
	if err != nil {
		return fmt.Errorf("encoding meta.json: %w", err)
	}

	if err := os.WriteFile(filepath.Join(tmp, "meta.json"), meta, 0o644); err != nil {
		return err
	}

	if _, err := tombstones.WriteFile(slog.New(slog.DiscardHandler), tmp, tombstones.NewMemTombstones()); err != nil {
		return fmt.Errorf("writing tombstones: %w", err)
	}

	return nil
}
