// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"cmp"
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/forecast"
)

// Accuracy is how past forecasts did, measured when what they were about had happened; newer samples weigh more, by a
// half-life of a day.
type Accuracy struct {
	// Samples that were compared, weighed by age. 0 means that nothing can be said yet.
	Samples float64
	// WAPE is the sum of the errors of the median over the sum of what happened; NaN where nothing was used.
	WAPE float64
	// Coverage is the share of samples at or below the 0.95 quantile.
	Coverage float64
	// Skill is 1 - loss / loss of a plain time-of-day quantile (see reference), by pinball loss at 0.95; NaN where that
	// has no loss or no history.
	Skill float64
}

const (
	scoreHalfLife = day
	upperLevel    = 0.95
	// ledgerCells bounds how much of a forecast is remembered to be compared.
	ledgerCells = 256
)

// score holds weighted sums.
type score struct {
	At                    int64 // Unix seconds of the newest sample
	Samples, Covered      float64
	Errors, Actual        float64
	Pinball, PlainPinball float64 // the two losses, over the samples that both forecast
}

func (s score) accuracy() Accuracy {
	if s.Samples <= 0 {
		return Accuracy{WAPE: math.NaN(), Coverage: math.NaN(), Skill: math.NaN()}
	}
	a := Accuracy{Samples: s.Samples, WAPE: math.NaN(), Coverage: s.Covered / s.Samples, Skill: math.NaN()}
	if s.Actual > 0 {
		a.WAPE = s.Errors / s.Actual
	}
	if s.PlainPinball > 0 {
		a.Skill = 1 - s.Pinball/s.PlainPinball
	}
	return a
}

// Overall is the mean of the accuracy of all requests, each of which counts the same; NaN where none can be measured yet.
func (p *Predictor) Overall() Accuracy {
	p.mu.Lock()
	all := make([]*entry, 0, len(p.entries))
	for _, e := range p.entries {
		all = append(all, e)
	}
	p.mu.Unlock()
	var samples float64
	var wape, coverage, skill mean
	for _, e := range all {
		a := e.accuracy()
		samples += a.Samples
		wape.add(a.WAPE)
		coverage.add(a.Coverage)
		skill.add(a.Skill)
	}
	return Accuracy{Samples: samples, WAPE: wape.value(), Coverage: coverage.value(), Skill: skill.value()}
}

// mean leaves out what is not known.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) {
	if !math.IsNaN(v) {
		m.sum, m.n = m.sum+v, m.n+1
	}
}

func (m mean) value() float64 {
	if m.n == 0 {
		return math.NaN()
	}
	return m.sum / float64(m.n)
}

// plus adds the sums of another score as they are.
func (s score) plus(o score) score {
	s.Samples, s.Covered = s.Samples+o.Samples, s.Covered+o.Covered
	s.Errors, s.Actual = s.Errors+o.Errors, s.Actual+o.Actual
	s.Pinball, s.PlainPinball = s.Pinball+o.Pinball, s.PlainPinball+o.PlainPinball
	return s
}

// sane tells whether a score may come from a checkpoint.
func (s score) sane() bool {
	for _, v := range []float64{s.Samples, s.Covered, s.Errors, s.Actual, s.Pinball, s.PlainPinball} {
		if !(v >= 0) || math.IsInf(v, 0) {
			return false
		}
	}
	return s.Covered <= s.Samples*1.0001
}

func (s *score) age(at int64) {
	if s.At != 0 && at > s.At {
		w := math.Exp2(-float64(at-s.At) / scoreHalfLife.Seconds())
		s.Samples, s.Covered, s.Errors, s.Actual = s.Samples*w, s.Covered*w, s.Errors*w, s.Actual*w
		s.Pinball, s.PlainPinball = s.Pinball*w, s.PlainPinball*w
	}
	s.At = at
}

func pinball(actual, forecast float64) float64 {
	if d := actual - forecast; d > 0 {
		return upperLevel * d
	}
	return (1 - upperLevel) * (forecast - actual)
}

// ledger remembers what was forecast, so that it can be compared with what comes.
type ledger struct {
	start         time.Time
	step          time.Duration
	median, upper []float32
}

// note takes a forecast that was given out, unless the one before it is not half over: what is compared should be a
// forecast of some distance, and not one of the next minute only because somebody asks each minute.
func (l *ledger) note(f forecast.Forecast, now time.Time) {
	half := l.start.Add(time.Duration(len(l.median)) * l.step / 2)
	if len(l.median) > 0 && now.Before(half) {
		return
	}
	first := 0
	if now.After(f.Start) {
		first = int(now.Sub(f.Start) / f.Step)
	}
	if first >= len(f.Values) {
		return
	}
	values := f.Values[first:]
	stride := (len(values) + ledgerCells - 1) / ledgerCells
	l.start, l.step = f.Start.Add(time.Duration(first)*f.Step), time.Duration(stride)*f.Step
	l.median, l.upper = l.median[:0], l.upper[:0]
	for i := 0; i < len(values); i += stride {
		l.median = append(l.median, float32(values[i].At(0.5)))
		l.upper = append(l.upper, float32(values[i].At(upperLevel)))
	}
}

func (l *ledger) at(t time.Time) (median, upper float64, ok bool) {
	if l.step <= 0 || t.Before(l.start) {
		return 0, 0, false
	}
	i := int(t.Sub(l.start) / l.step)
	if i >= len(l.median) {
		return 0, 0, false
	}
	return float64(l.median[i]), float64(l.upper[i]), true
}

// Sizes of the reference. Fourteen days by the minute would be larger than the model.
const (
	referenceDays  = 7
	referenceSlots = 48
	// referenceDecay is the weight of a day against the day after it.
	referenceDecay = 0.8
)

// reference is the plain method to compare with: the quantile, weighted by 0.8^(days ago - 1), of the samples of the same
// half hour of the last seven days. Each half hour is kept as its median and its 95th percentile, which stand for 0.9 and
// 0.1 of its samples.
type reference struct {
	cells [referenceDays][referenceSlots][2]float32
	days  [referenceDays]int32 // which day the row holds
	// The half hour in progress.
	slot   int64
	buffer []float32
	// known is the forecast for the slot in progress.
	known   float64
	isKnown bool
}

const slotSeconds = int64(day/time.Second) / referenceSlots

// quantile is the plain forecast for the half hour of at, from the days before it.
func (r *reference) quantile(at int64) (float64, bool) {
	if slot := at / slotSeconds; slot == r.slot && len(r.buffer) > 0 {
		return r.known, r.isKnown
	}
	return r.compute(at / slotSeconds)
}

func (r *reference) compute(slot int64) (float64, bool) {
	today, index := int32(slot/referenceSlots), slot%referenceSlots
	type atom struct{ value, weight float64 }
	var atoms []atom
	total := 0.0
	for i, d := range r.days {
		ago := today - d
		mid := r.cells[i][index][0]
		if d == 0 || ago < 1 || ago > referenceDays || mid != mid || mid < 0 {
			continue
		}
		w := math.Pow(referenceDecay, float64(ago-1))
		atoms = append(atoms, atom{float64(mid), 0.9 * w}, atom{float64(r.cells[i][index][1]), 0.1 * w})
		total += w
	}
	if len(atoms) == 0 {
		return 0, false
	}
	slices.SortFunc(atoms, func(a, b atom) int { return cmp.Compare(a.value, b.value) })
	sum := 0.0
	for _, a := range atoms {
		if sum += a.weight; sum >= upperLevel*total {
			return a.value, true
		}
	}
	return atoms[len(atoms)-1].value, true
}

// observe adds a sample; times come in order.
func (r *reference) observe(at int64, value float64) {
	if slot := at / slotSeconds; slot != r.slot || len(r.buffer) == 0 {
		r.close()
		r.slot = slot
		r.known, r.isKnown = r.compute(slot)
	}
	if len(r.buffer) < 4*int(slotSeconds/60) {
		r.buffer = append(r.buffer, float32(value))
	}
}

// close files the half hour in progress.
func (r *reference) close() {
	if len(r.buffer) == 0 {
		return
	}
	d := int32(r.slot / referenceSlots)
	row := int(d % referenceDays)
	if d >= 0 && r.days[row] != d {
		r.days[row] = d
		for i := range r.cells[row] {
			r.cells[row][i] = [2]float32{-1, -1}
		}
	}
	if d >= 0 {
		slices.Sort(r.buffer)
		at := func(q float64) float32 { return r.buffer[int(q*float64(len(r.buffer)-1)+0.5)] }
		r.cells[row][r.slot%referenceSlots] = [2]float32{at(0.5), at(upperLevel)}
	}
	r.buffer = r.buffer[:0]
}

// farthest is the last time that is believed: what follows does not fit the counters of days.
var farthest = time.Unix(1<<37, 0)

// track is a series with everything that is known of it.
type track struct {
	model     model
	last      time.Time // newest sample, zero where there is none
	first     time.Time // oldest sample that was seen
	ledger    ledger
	score     score
	reference reference
}

// observe compares a sample with what was forecast of it and then learns from it. Samples come in the order of time; a
// forecast that was given out begins after the newest sample of its day, so that nothing is compared that it knew.
func (t *track) observe(at time.Time, value float64) {
	if at.Unix() < 0 || at.After(farthest) {
		return // nobody's clock
	}
	t.compare(at, value)
	t.reference.observe(at.Unix(), value)
	t.model.observe(at, value)
	if t.first.IsZero() {
		t.first = at
	}
	t.last = at
}

func (t *track) compare(at time.Time, value float64) {
	median, upper, ok := t.ledger.at(at)
	if !ok {
		return
	}
	s := &t.score
	s.age(at.Unix())
	s.Samples++
	s.Errors += math.Abs(value - median)
	s.Actual += value
	if value <= upper {
		s.Covered++
	}
	if plain, ok := t.reference.quantile(at.Unix()); ok {
		s.Pinball += pinball(value, upper)
		s.PlainPinball += pinball(value, plain)
	}
}
