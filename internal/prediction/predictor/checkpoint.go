// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// load restores entries from their checkpoints. Entries without a usable checkpoint are read from the source.
func (p *Predictor) load(entries []*entry) {
	for _, e := range entries {
		next := toFetch
		n := 0
		var until time.Time
		if p.store != nil {
			c, err := p.store.read(e.plan.key)
			if err == nil {
				p.mu.Lock()
				allowance := p.requested.seriesAllowance(e)
				p.mu.Unlock()
				n, err = e.restore(c, p.config.Clock.Now(), min(p.config.MaxSeriesPerQuery, allowance))
			}

			// A new series has no file yet.
			switch {
			case err == nil:
				next = live
				until = c.Until
			case !errors.Is(err, fs.ErrNotExist):
				p.config.Log.Info("checkpoint is unusable, reading the history instead", "query", e.plan.query.String(), "reason", err.Error())
			}
		}

		p.mu.Lock()
		e.phase = next
		e.read = until
		if next == live {
			p.requested.setModels(e, n)
		}

		p.mu.Unlock()
		if next == live {
			p.counts.restored.Add(1)
		}
	}
}

// restore sets the entry's state from a checkpoint and returns the number of models.
func (e *entry) restore(c checkpoint, now time.Time, limit int) (int, error) {
	if c.Query != e.plan.query || len(c.Tracks) > limit || len(c.Tracks) == 0 {
		return 0, fmt.Errorf("%w: it is for another query or has %d series", errCheckpoint, len(c.Tracks))
	}

	if c.Until.After(now) || now.Sub(c.Until) > e.plan.history {
		return 0, fmt.Errorf("%w: it ends at %s", errCheckpoint, c.Until.Format(time.RFC3339))
	}

	// Everything is decoded before the entry changes, so that a damaged file leaves it as it was.
	tracks := make(map[string]*labeled, len(c.Tracks))
	for _, s := range c.Tracks {
		t := &labeled{labels: s.Labels, seriesState: seriesState{model: e.plan.newModel(), first: s.First, last: s.Last}}
		if err := t.model.unmarshal(s.Model); err != nil {
			return 0, fmt.Errorf("%w: %w", errCheckpoint, err)
		}

		if s.Last.After(c.Until) || s.First.After(s.Last) {
			return 0, fmt.Errorf("%w: its times are out of order", errCheckpoint)
		}

		if s.Score.isValid() {
			t.score = s.Score
		}

		if l := s.Ledger; l.Step > 0 && len(l.Median) == len(l.Upper) && len(l.Median) <= logCells {
			t.ledger = forecastLog{
				start:  l.Start,
				step:   l.Step,
				median: l.Median,
				upper:  l.Upper,
			}
		}

		t.reference.cells, t.reference.days = s.Cells, s.Days
		tracks[labelKey(s.Labels)] = t
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	e.tracks = tracks
	e.until = c.Until
	e.answered = c.Until

	return len(tracks), nil
}

// snapshot returns the entry's state for its checkpoint, and false if it is empty or unchanged since the last one.
func (e *entry) snapshot() (checkpoint, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if !e.dirty || len(e.tracks) == 0 {
		return checkpoint{}, false, nil
	}

	c := checkpoint{Query: e.plan.query, Until: e.until}
	for _, t := range e.tracks {
		model, err := t.model.marshal()
		if err != nil {
			return checkpoint{}, false, fmt.Errorf("the model of %s: %w", e.plan.query, err)
		}

		// The log is copied, because the caller encodes it without the lock.
		c.Tracks = append(c.Tracks, trackCheckpoint{
			Labels: t.labels,
			Model:  model,
			First:  t.first,
			Last:   t.last,
			Score:  t.score,
			Ledger: ledgerCheckpoint{
				Start:  t.ledger.start,
				Step:   t.ledger.step,
				Median: append([]float32(nil), t.ledger.median...),
				Upper:  append([]float32(nil), t.ledger.upper...),
			},
			Cells: t.reference.cells,
			Days:  t.reference.days,
		})
	}

	e.dirty = false
	return c, true, nil
}

// save writes changed checkpoints. With prune it also removes files of unknown entries; soon after a start callers
// have not registered yet, so prune must be false then.
func (p *Predictor) save(prune bool) {
	if p.store == nil {
		return
	}

	p.saving.Lock()
	defer p.saving.Unlock()

	p.mu.Lock()
	all := make([]*entry, 0, len(p.requested.entries))
	requested := make(map[string]bool, len(p.requested.entries))
	for key, e := range p.requested.entries {
		all = append(all, e)
		requested[key.String()] = true
	}

	p.mu.Unlock()
	errs := []error{p.store.measure()}
	for _, e := range all {
		// An entry may lose its last caller while its file is written.
		c, changed, err := e.snapshot()
		if err == nil && changed {
			err = p.store.write(e.plan.key, c)
		}
		if _, findErr := p.find(e.plan.key); findErr != nil {
			p.store.remove(e.plan.key)
		}

		errs = append(errs, err)
	}

	if prune {
		errs = append(errs, p.store.prune(requested))
	}
	if err := errors.Join(errs...); err != nil {
		p.config.Log.Error(err, "writing checkpoints")
	}
}
