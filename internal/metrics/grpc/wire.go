// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// target is what a metric is of. In the order of the fields of its message; empty ones are left out, as proto3 does.
type target struct {
	// number is that of the field in Metric: which message it is.
	number protowire.Number
	fields []string
}

const (
	fieldContainer protowire.Number = 2
	fieldNode      protowire.Number = 4
	fieldWorkload  protowire.Number = 5
)

// request is QueryTimeSeriesRequest, and QueryLatestTimeSeriesRequest where end is 0.
type request struct {
	metric           string
	of               target
	start, end, step int64 // seconds
}

// sample of a series.
type sample struct {
	seconds int64
	value   float64
}

// timeSeries is TimeSeries.
type timeSeries struct {
	labels  map[string]string
	samples []sample
}

// response is QueryTimeSeriesResponse.
type response struct{ list []timeSeries }

func appendText(b []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

func appendInt(b []byte, number protowire.Number, n int64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(n))
}

func appendMessage(b []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), message)
}

func (r request) marshal() []byte {
	var of []byte
	for i, text := range r.of.fields {
		of = appendText(of, protowire.Number(i+1), text)
	}
	metric := appendMessage(appendText(nil, 1, r.metric), r.of.number, of)
	b := appendMessage(nil, 1, metric)
	return appendInt(appendInt(appendInt(b, 2, r.start), 3, r.end), 4, r.step)
}

// Bounds of an answer: of a message of the size that is accepted, nearly all could be empty series or labels.
const (
	maxSeries = 10_000
	maxLabels = 64
)

var (
	errTooManySeries = errors.New("more series than one answer may have")
	errTooManyLabels = errors.New("more labels than one series may have")
)

func (r *response) unmarshal(data []byte) error {
	*r = response{}
	return eachField(data, func(number protowire.Number, value field) error {
		if number != 1 {
			return nil
		}
		if len(r.list) == maxSeries {
			return errTooManySeries
		}
		var one timeSeries
		if err := one.unmarshal(value.bytes); err != nil {
			return err
		}
		r.list = append(r.list, one)
		return nil
	})
}

func (s *timeSeries) unmarshal(data []byte) error {
	s.labels = map[string]string{}
	return eachField(data, func(number protowire.Number, value field) error {
		switch number {
		case 1:
			if len(s.labels) == maxLabels {
				return errTooManyLabels
			}
			var name, text string
			err := eachField(value.bytes, func(number protowire.Number, value field) error {
				switch number {
				case 1:
					name = string(value.bytes)
				case 2:
					text = string(value.bytes)
				}
				return nil
			})
			s.labels[name] = text
			return err
		case 2:
			var one sample
			err := eachField(value.bytes, func(number protowire.Number, value field) error {
				switch number {
				case 1:
					one.seconds = int64(value.number)
				case 2:
					one.value = math.Float64frombits(value.number)
				}
				return nil
			})
			s.samples = append(s.samples, one)
			return err
		}
		return nil
	})
}

// field is the value of a field: a number for the types varint and 64 bits, bytes for all that have a length.
type field struct {
	number uint64
	bytes  []byte
}

// eachField calls visit with each field of a message. Types that the protocol does not use are skipped.
func eachField(data []byte, visit func(protowire.Number, field) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("broken message: %w", protowire.ParseError(n))
		}
		data = data[n:]
		var value field
		switch kind {
		case protowire.VarintType:
			value.number, n = protowire.ConsumeVarint(data)
		case protowire.Fixed64Type:
			value.number, n = protowire.ConsumeFixed64(data)
		case protowire.BytesType:
			value.bytes, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return fmt.Errorf("broken message: %w", protowire.ParseError(n))
		}
		data = data[n:]
		if err := visit(number, value); err != nil {
			return err
		}
	}
	return nil
}

// codec lets gRPC carry these messages.
type codec struct{}

// Name implements encoding.Codec.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (codec) Marshal(message any) ([]byte, error) {
	r, ok := message.(*request)
	if !ok {
		return nil, fmt.Errorf("no message of the protocol: %T", message)
	}
	return r.marshal(), nil
}

// Unmarshal implements encoding.Codec.
func (codec) Unmarshal(data []byte, message any) error {
	r, ok := message.(*response)
	if !ok {
		return fmt.Errorf("no message of the protocol: %T", message)
	}
	return r.unmarshal(data)
}
