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

// Accuracy measures past forecasts against the samples that followed. Weights of samples halve with each day of age.
type Accuracy struct {
	// Samples is the weighted number of samples compared. 0 means that no forecast has been compared yet.
	Samples float64
	// WAPE is the sum of absolute errors of the median over the sum of the samples; NaN if the samples sum to 0.
	WAPE float64
	// Coverage is the share of samples at or below the 0.95 quantile, 0 to 1.
	Coverage float64
	// Skill is 1 - loss / loss of the reference (see reference), by pinball loss at 0.95; NaN if the reference has no
	// loss or no history.
	Skill float64
}

const (
	scoreHalfLife = day
	upperLevel    = 0.95
	// logCells is the maximum number of steps of a forecast that are kept for comparison.
	logCells = 256
)

// score holds the weighted sums that Accuracy is computed from.
type score struct {
	At                    int64 // Unix seconds of the newest sample
	Samples, Covered      float64
	Errors, Actual        float64
	Pinball, PlainPinball float64 // losses of the forecast and of the reference, over the samples that both cover
}

func (s score) accuracy() Accuracy {
	if s.Samples <= 0 {
		return Accuracy{WAPE: math.NaN(), Coverage: math.NaN(), Skill: math.NaN()}
	}

	a := Accuracy{
		Samples:  s.Samples,
		WAPE:     math.NaN(),
		Coverage: s.Covered / s.Samples,
		Skill:    math.NaN(),
	}

	if s.Actual > 0 {
		a.WAPE = s.Errors / s.Actual
	}
	if s.PlainPinball > 0 {
		a.Skill = 1 - s.Pinball/s.PlainPinball
	}

	return a
}

// Overall returns the unweighted mean accuracy of all requests; a field is NaN if no request has a value for it.
func (p *Predictor) Overall() Accuracy {
	p.mu.Lock()
	all := make([]*entry, 0, len(p.requested.entries))
	for _, e := range p.requested.entries {
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

	return Accuracy{
		Samples:  samples,
		WAPE:     wape.value(),
		Coverage: coverage.value(),
		Skill:    skill.value(),
	}
}

// mean averages values and skips NaN.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) {
	if !math.IsNaN(v) {
		m.sum += v
		m.n++
	}
}

func (m mean) value() float64 {
	if m.n == 0 {
		return math.NaN()
	}

	return m.sum / float64(m.n)
}

// add returns the sums of both scores, without aging either.
func (s score) add(o score) score {
	s.Samples += o.Samples
	s.Covered += o.Covered
	s.Errors += o.Errors
	s.Actual += o.Actual
	s.Pinball += o.Pinball
	s.PlainPinball += o.PlainPinball

	return s
}

// isValid reports whether a score read from a checkpoint has finite, consistent sums.
func (s score) isValid() bool {
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
		s.Samples *= w
		s.Covered *= w
		s.Errors *= w
		s.Actual *= w
		s.Pinball *= w
		s.PlainPinball *= w
	}

	s.At = at
}

func pinball(actual, forecast float64) float64 {
	if d := actual - forecast; d > 0 {
		return upperLevel * d
	}

	return (1 - upperLevel) * (forecast - actual)
}

// forecastLog keeps a published forecast for comparison with the samples that follow.
type forecastLog struct {
	start         time.Time
	step          time.Duration
	median, upper []float32
}

// record replaces the logged forecast by f once half of the logged one has passed, so that comparisons cover a range
// of lead times and not only the next step.
func (l *forecastLog) record(f forecast.Forecast, now time.Time) {
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

	// Longer forecasts are logged at a coarser step, so that the log has a fixed size.
	values := f.Values[first:]
	stride := (len(values) + logCells - 1) / logCells
	l.start = f.Start.Add(time.Duration(first) * f.Step)

	l.step = time.Duration(stride) * f.Step
	l.median = l.median[:0]
	l.upper = l.upper[:0]
	for i := 0; i < len(values); i += stride {
		l.median = append(l.median, float32(values[i].At(0.5)))
		l.upper = append(l.upper, float32(values[i].At(upperLevel)))
	}
}

func (l *forecastLog) at(t time.Time) (median, upper float64, ok bool) {
	if l.step <= 0 || t.Before(l.start) {
		return 0, 0, false
	}

	i := int(t.Sub(l.start) / l.step)
	if i >= len(l.median) {
		return 0, 0, false
	}

	return float64(l.median[i]), float64(l.upper[i]), true
}

// Size of the reference. Fourteen days at one minute would be larger than the model itself.
const (
	referenceDays  = 7
	referenceSlots = 48
	// referenceDecay is the weight of a day relative to the following day.
	referenceDecay = 0.8
)

// reference is the method that Skill compares with: the quantile of the samples of the same half hour on the last
// seven days, weighted by 0.8^(days ago - 1). Each half hour is stored as its median and 95th percentile, which
// represent 0.9 and 0.1 of its samples.
type reference struct {
	cells [referenceDays][referenceSlots][2]float32
	days  [referenceDays]int32 // day number, since 1970, of each row
	// slot is the half hour in progress, buffer its samples.
	slot   int64
	buffer []float32
	// slotForecast is the forecast for the slot in progress.
	slotForecast    float64
	hasSlotForecast bool
}

const slotSeconds = int64(day/time.Second) / referenceSlots

// quantile returns the forecast for the half hour that contains at, from the days before it.
func (r *reference) quantile(at int64) (float64, bool) {
	if slot := at / slotSeconds; slot == r.slot && len(r.buffer) > 0 {
		return r.slotForecast, r.hasSlotForecast
	}

	return r.compute(at / slotSeconds)
}

func (r *reference) compute(slot int64) (float64, bool) {
	today := int32(slot / referenceSlots)
	index := slot % referenceSlots
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

	// The quantile is the first value below which the weight of the level lies.
	slices.SortFunc(atoms, func(a, b atom) int { return cmp.Compare(a.value, b.value) })
	sum := 0.0
	for _, a := range atoms {
		if sum += a.weight; sum >= upperLevel*total {
			return a.value, true
		}
	}

	return atoms[len(atoms)-1].value, true
}

// observe adds a sample. Samples arrive in time order.
func (r *reference) observe(at int64, value float64) {
	if slot := at / slotSeconds; slot != r.slot || len(r.buffer) == 0 {
		r.finishSlot()
		r.slot = slot
		r.slotForecast, r.hasSlotForecast = r.compute(slot)
	}

	if len(r.buffer) < 4*int(slotSeconds/60) {
		r.buffer = append(r.buffer, float32(value))
	}
}

// finishSlot stores the half hour in progress.
func (r *reference) finishSlot() {
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

// maxTime is the latest sample time that is accepted: later ones overflow the day counters.
var maxTime = time.Unix(1<<37, 0)

// seriesState is the model and the accuracy state of one series.
type seriesState struct {
	model     model
	last      time.Time // newest sample; zero if there is none
	first     time.Time // oldest sample
	ledger    forecastLog
	score     score
	reference reference
}

// observe compares a sample with the logged forecast and then adds it to the model. Samples arrive in time order, and
// a logged forecast starts after the newest sample at its creation, so no forecast is compared with its own input.
func (t *seriesState) observe(at time.Time, value float64) {
	if at.Unix() < 0 || at.After(maxTime) {
		return // not a plausible time
	}

	t.compare(at, value)
	t.reference.observe(at.Unix(), value)
	t.model.observe(at, value)

	if t.first.IsZero() {
		t.first = at
	}
	t.last = at
}

func (t *seriesState) compare(at time.Time, value float64) {
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
