// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
)

// label and point are what the decoder hands out. Both are valid only until the visitor returns.
type label struct{ name, value []byte }

type point struct {
	ms    int64 // since the Unix epoch
	value float64
}

// answer is what a response holds beside its series.
type answer struct {
	status, errorType, message string
	// resultType as the server names it: matrix, vector, scalar, string; empty where it does not.
	resultType string
	warnings   []string
	// plain tells that the result is a scalar or a string: a pair instead of a list of series.
	plain bool
	// histograms counts native histograms, which have no single value.
	histograms      int64
	series, samples int64
}

// errTooMany ends the decoding of an answer that is larger than asked for.
var errTooMany = errors.New("the answer holds more samples than this client accepts")

const maxWarnings = 8

// decoder reads the answer of /api/v1/query and /api/v1/query_range, series by series. Keys may come in any order, so
// what to make of the series is known for sure only at the end.
type decoder struct {
	s          *scanner
	maxSamples int64
	visit      func(labels []label, points []point) error

	answer answer
	labels []label
	spans  []span
	arena  []byte
	points []point
	text   []byte
}

// span marks a label in the arena: name is arena[from:mid], value arena[mid:to].
type span struct{ from, mid, to int }

func decode(r io.Reader, maxSamples int64, visit func([]label, []point) error) (answer, error) {
	d := &decoder{s: newScanner(r), maxSamples: maxSamples, visit: visit}
	if err := d.s.object(d.top); err != nil {
		return d.answer, err
	}
	if c, err := d.s.peek(); err == nil {
		return d.answer, d.s.bad("%q after the end of the answer", c)
	}
	return d.answer, nil
}

// decodeLabelSets reads the answer of /api/v1/series, a list of label sets.
func decodeLabelSets(r io.Reader, most int64, visit func(labels []label, points []point) error) (answer, error) {
	d := &decoder{s: newScanner(r), visit: visit}
	one := func() error {
		if d.answer.series++; d.answer.series > most {
			return errTooMany
		}
		d.forget()
		if err := d.metric(); err != nil {
			return err
		}
		return d.handOut()
	}
	err := d.s.object(func(key string) error {
		if key == "data" {
			return d.orNull('[', func() error { return d.s.array(one) })
		}
		return d.top(key)
	})
	return d.answer, err
}

func (d *decoder) top(key string) (err error) {
	switch key {
	case "status":
		d.answer.status, err = d.short()
	case "errorType":
		d.answer.errorType, err = d.short()
	case "error":
		d.answer.message, err = d.short()
	case "warnings":
		err = d.orNull('[', func() error { return d.s.array(d.warning) })
	case "isPartial": // VictoriaMetrics's way to warn
		if d.text, err = d.s.token(d.text[:0]); string(d.text) == "true" {
			d.warn("the server could reach a part of the data only")
		}
	case "data":
		err = d.orNull('{', func() error { return d.s.object(d.data) })
	default:
		err = d.s.skip(0)
	}
	return err
}

// orNull runs read if the value begins with open, and takes null for a missing one.
func (d *decoder) orNull(open byte, read func() error) error {
	c, err := d.s.peek()
	if err != nil {
		return err
	}
	if c == open {
		return read()
	}
	if c == 'n' {
		return d.s.skip(0)
	}
	return d.s.bad("want %q, got %q", open, c)
}

func (d *decoder) short() (string, error) {
	var err error
	d.text, err = d.s.str(d.text[:0])
	return string(d.text), err
}

func (d *decoder) warning() error {
	w, err := d.short()
	if err == nil {
		d.warn(w)
	}
	return err
}

func (d *decoder) warn(text string) {
	if len(d.answer.warnings) < maxWarnings {
		d.answer.warnings = append(d.answer.warnings, text)
	}
}

func (d *decoder) data(key string) (err error) {
	switch key {
	case "resultType":
		d.answer.resultType, err = d.short()
	case "result":
		err = d.orNull('[', func() error { return d.s.array(d.element) })
	default:
		err = d.s.skip(0)
	}
	return err
}

// element is one series, or one half of a scalar or string.
func (d *decoder) element() error {
	c, err := d.s.peek()
	if err != nil {
		return err
	}
	if c != '{' {
		d.answer.plain = true
		return d.s.skip(1)
	}
	d.forget()
	if err := d.s.object(d.member); err != nil {
		return err
	}
	d.answer.series++
	return d.handOut()
}

// forget empties the buffers for the next series.
func (d *decoder) forget() { d.arena, d.spans, d.points = d.arena[:0], d.spans[:0], d.points[:0] }

// handOut gives the visitor the series that was read.
func (d *decoder) handOut() error {
	d.labels = d.labels[:0]
	for _, sp := range d.spans {
		d.labels = append(d.labels, label{name: d.arena[sp.from:sp.mid], value: d.arena[sp.mid:sp.to]})
	}
	return d.visit(d.labels, d.points)
}

func (d *decoder) member(key string) error {
	switch key {
	case "metric":
		return d.metric()
	case "values":
		return d.orNull('[', d.values)
	case "value":
		return d.pair()
	case "histogram":
		d.answer.histograms++
		return d.s.skip(0)
	case "histograms":
		return d.s.array(func() error {
			d.answer.histograms++
			return d.s.skip(0)
		})
	}
	return d.s.skip(0)
}

func (d *decoder) metric() error {
	s := d.s
	if err := s.expect('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		ok, err := s.more(first, '}')
		if err != nil || !ok {
			return err
		}
		sp := span{from: len(d.arena)}
		if d.arena, err = s.str(d.arena); err != nil {
			return err
		}
		sp.mid = len(d.arena)
		if err := s.expect(':'); err != nil {
			return err
		}
		if d.arena, err = s.str(d.arena); err != nil {
			return err
		}
		sp.to = len(d.arena)
		if sp.to > maxString {
			return s.bad("labels of more than %d bytes", maxString)
		}
		d.spans = append(d.spans, sp)
	}
}

// values is the hot loop: the list of pairs of one series.
func (d *decoder) values() error {
	if err := d.s.expect('['); err != nil {
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

// pair reads [time, "value"].
func (d *decoder) pair() error {
	s := d.s
	if d.answer.samples++; d.answer.samples > d.maxSamples {
		return errTooMany
	}
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
	stamp, err := strconv.ParseFloat(string(d.text), 64)
	if err != nil || !json.Valid(d.text) || math.Abs(stamp) > 1e13 {
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
	d.points = append(d.points, point{ms: int64(math.Round(stamp * 1000)), value: value})
	return s.expect(']')
}

// parseValue reads a sample value. A number too large for a float64 is infinite, as in Prometheus.
func parseValue(text []byte) (float64, error) {
	v, err := strconv.ParseFloat(string(text), 64)
	if errors.Is(err, strconv.ErrRange) {
		return v, nil
	}
	return v, err
}

// fastPair reads a pair as Prometheus writes it, [1700000000.123,"0.25"], if it lies whole in the buffer; otherwise it
// consumes nothing.
func (s *scanner) fastPair() (point, bool) {
	b := s.buf[s.pos:s.end]
	ms, i, ok := fastStamp(b)
	if !ok || i+1 >= len(b) || b[i] != ',' || b[i+1] != '"' {
		return point{}, false
	}
	i += 2
	n := bytes.IndexByte(b[i:], '"')
	if n < 0 || i+n+1 >= len(b) || b[i+n+1] != ']' {
		return point{}, false
	}
	v, err := parseValue(b[i : i+n]) // fails on an escape
	if err != nil {
		return point{}, false
	}
	s.pos += i + n + 2
	return point{ms: ms, value: v}, true
}

// fastStamp reads "[" and a time in seconds with at most three decimals; next is the index behind it.
func fastStamp(b []byte) (ms int64, next int, ok bool) {
	const longest = 1 + 14 // no overflow, whatever the digits
	if len(b) < 4 || b[0] != '[' || b[1] < '1' || b[1] > '9' {
		return 0, 0, false
	}
	i := 1
	for ; i < min(len(b), longest) && b[i] >= '0' && b[i] <= '9'; i++ {
		ms = ms*10 + int64(b[i]-'0')
	}
	decimals := 0
	if i < len(b) && b[i] == '.' {
		for i++; i < len(b) && decimals < 3 && b[i] >= '0' && b[i] <= '9'; i++ {
			ms = ms*10 + int64(b[i]-'0')
			decimals++
		}
		if decimals == 0 {
			return 0, 0, false
		}
	}
	for ; decimals < 3; decimals++ {
		ms *= 10
	}
	return ms, i, true
}
