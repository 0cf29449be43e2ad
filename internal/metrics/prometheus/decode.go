// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
)

// label and point are passed to collectors. Both are valid only until collector.add returns.
type label struct{ name, value []byte }

type point struct {
	ms    int64 // since the Unix epoch
	value float64
}

// collector collects the series of one response. reset drops those of a failed attempt.
type collector interface {
	reset()
	add(labels []label, points []point) error
}

// answer holds the parts of a response other than its series.
type answer struct {
	status, errorType, message string
	// resultType is matrix, vector, scalar or string; empty where the server does not set it.
	resultType string
	warnings   []string
	// plain is set where the result is a scalar or a string: a pair instead of a list of series.
	plain bool
	// histograms counts native histograms, which have no single value.
	histograms      int64
	series, samples int64
}

// errTooMany ends the decoding of a response that is larger than requested.
var errTooMany = errors.New("the answer holds more samples than this client accepts")

const maxWarnings = 8

// decoder reads responses of the query and series endpoints, series by series. Keys can be in any order, so the meaning of the series is
// certain only at the end.
type decoder struct {
	s scanner
	// limit bounds the samples of a result, or the label sets of the series endpoint.
	limit     int64
	labelSets bool
	sink      collector

	answer answer
	labels []label
	spans  []span
	arena  []byte
	points []point
	text   []byte
}

// span locates a label in the arena: name is arena[from:mid], value arena[mid:to].
type span struct{ from, mid, to int }

// decode decodes a response of the query endpoints, or a list of label sets of the series endpoint.
func (d *decoder) decode() error {
	if err := d.s.expect('{'); err != nil {
		return err
	}

	for first := true; ; first = false {
		key, ok, err := d.s.key(first)
		if err != nil {
			return err
		}

		if !ok {
			break
		}

		switch string(key) {
		case "status":
			d.answer.status, err = d.shortText()
		case "errorType":
			d.answer.errorType, err = d.shortText()
		case "error":
			d.answer.message, err = d.shortText()
		case "warnings":
			err = d.warnings()

		case "isPartial": // How VictoriaMetrics warns.
			if d.text, err = d.s.token(d.text[:0]); string(d.text) == "true" {
				d.warn("the server could reach a part of the data only")
			}
		case "data":
			if d.labelSets {
				err = d.list()
			} else {
				err = d.data()
			}

		default:
			err = d.s.skip(0)
		}

		if err != nil {
			return err
		}
	}

	if c, err := d.s.peek(); err == nil {
		return d.s.bad("%q after the end of the answer", c)
	}

	return nil
}

func (d *decoder) shortText() (string, error) {
	var err error
	d.text, err = d.s.str(d.text[:0])
	return string(d.text), err
}

func (d *decoder) warnings() error {
	open, err := d.s.openOrNull('[')
	for first := true; err == nil && open; first = false {
		if open, err = d.s.more(first, ']'); open && err == nil {
			var w string
			if w, err = d.shortText(); err == nil {
				d.warn(w)
			}
		}
	}

	return err
}

func (d *decoder) warn(text string) {
	if len(d.answer.warnings) < maxWarnings {
		d.answer.warnings = append(d.answer.warnings, text)
	}
}

// data decodes the object with the result.
func (d *decoder) data() error {
	open, err := d.s.openOrNull('{')
	if err != nil || !open {
		return err
	}

	for first := true; ; first = false {
		key, ok, err := d.s.key(first)
		if err != nil || !ok {
			return err
		}

		switch string(key) {
		case "resultType":
			d.answer.resultType, err = d.shortText()
		case "result":
			err = d.list()
		default:
			err = d.s.skip(0)
		}

		if err != nil {
			return err
		}
	}
}

// list decodes a list of series or label sets.
func (d *decoder) list() error {
	open, err := d.s.openOrNull('[')
	if err != nil || !open {
		return err
	}

	for first := true; ; first = false {
		if ok, err := d.s.more(first, ']'); err != nil || !ok {
			return err
		}

		if err := d.element(); err != nil {
			return err
		}
	}
}

// element decodes one series, one label set, or one half of a scalar or string.
func (d *decoder) element() error {
	c, err := d.s.peek()
	if err != nil {
		return err
	}

	// A scalar or string is a pair of plain values; the caller rejects it once the type of the result is known.
	if c != '{' && !d.labelSets {
		d.answer.plain = true
		return d.s.skip(1)
	}

	d.answer.series++
	d.arena = d.arena[:0]
	d.spans = d.spans[:0]

	d.points = d.points[:0]
	if d.labelSets {
		if d.answer.series > d.limit {
			return errTooMany
		}

		err = d.metric()
	} else {
		err = d.series()
	}

	if err != nil {
		return err
	}

	// Labels are built at the end, as the arena may move while it grows.
	d.labels = d.labels[:0]
	for _, sp := range d.spans {
		d.labels = append(d.labels, label{name: d.arena[sp.from:sp.mid], value: d.arena[sp.mid:sp.to]})
	}

	return d.sink.add(d.labels, d.points)
}

// series decodes the labels and samples of one series.
func (d *decoder) series() error {
	if err := d.s.expect('{'); err != nil {
		return err
	}

	for first := true; ; first = false {
		key, ok, err := d.s.key(first)
		if err != nil || !ok {
			return err
		}

		switch string(key) {
		case "metric":
			err = d.metric()
		case "values":
			err = d.values()
		case "value":
			err = d.pair()

		// A native histogram has no single value and counts as an invalid sample.
		case "histogram":
			d.answer.histograms++
			err = d.s.skip(0)
		case "histograms":
			err = d.histograms()
		default:
			err = d.s.skip(0)
		}

		if err != nil {
			return err
		}
	}
}

func (d *decoder) histograms() error {
	if err := d.s.expect('['); err != nil {
		return err
	}

	for first := true; ; first = false {
		if ok, err := d.s.more(first, ']'); err != nil || !ok {
			return err
		}

		d.answer.histograms++
		if err := d.s.skip(0); err != nil {
			return err
		}
	}
}

// metric decodes a label set.
func (d *decoder) metric() error {
	if err := d.s.expect('{'); err != nil {
		return err
	}

	for first := true; ; first = false {
		ok, err := d.s.more(first, '}')
		if err != nil || !ok {
			return err
		}

		sp := span{from: len(d.arena)}
		if d.arena, err = d.s.str(d.arena); err != nil {
			return err
		}

		sp.mid = len(d.arena)
		if err := d.s.expect(':'); err != nil {
			return err
		}

		if d.arena, err = d.s.str(d.arena); err != nil {
			return err
		}

		sp.to = len(d.arena)
		if sp.to > maxString {
			return d.s.bad("labels of more than %d bytes", maxString)
		}

		d.spans = append(d.spans, sp)
	}
}

// values decodes the pairs of one series. Its loop dominates the time of decoding.
func (d *decoder) values() error {
	open, err := d.s.openOrNull('[')
	if err != nil || !open {
		return err
	}

	for first := true; ; first = false {
		ok, err := d.s.more(first, ']')
		if err != nil || !ok {
			return err
		}

		if err := d.pair(); err != nil {
			return err
		}
	}
}

// pair decodes [time, "value"].
func (d *decoder) pair() error {
	s := &d.s
	d.answer.samples++

	if d.answer.samples > d.limit {
		return errTooMany
	}

	// Nearly all pairs are complete in the buffer and have the common form; the rest is the general case.
	if p, ok := s.fastPair(); ok {
		d.points = append(d.points, p)
		return nil
	}

	if err := s.expect('['); err != nil {
		return err
	}

	var err error
	if d.text, err = s.token(d.text[:0]); err != nil {
		return err
	}

	seconds, err := strconv.ParseFloat(string(d.text), 64)
	if err != nil || !json.Valid(d.text) || math.Abs(seconds) > 1e13 {
		return s.bad("time %q", d.text)
	}

	if err := s.expect(','); err != nil {
		return err
	}

	if d.text, err = s.str(d.text[:0]); err != nil {
		return err
	}

	value, err := parseValue(d.text)
	if err != nil {
		return s.bad("value %.40q is not a number", d.text)
	}

	d.points = append(d.points, point{ms: int64(math.Round(seconds * 1000)), value: value})
	return s.expect(']')
}
