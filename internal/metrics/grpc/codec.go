// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Limits of a response. A message of the accepted size could otherwise consist of millions of empty elements, whose decoded form takes
// several GiB.
const (
	maxSeries  = 10_000
	maxLabels  = 64
	maxSamples = maxAnswer / 8
)

var (
	errTooManySeries  = errors.New("more series than one answer may have")
	errTooManyLabels  = errors.New("more labels than one series may have")
	errTooManySamples = errors.New("more samples than one answer may have")
)

// limitingCodec encodes protobuf messages and rejects responses with too many elements before it decodes them.
type limitingCodec struct{}

// Name implements encoding.Codec.
func (limitingCodec) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (limitingCodec) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", message)
	}

	return proto.Marshal(m)
}

// Unmarshal implements encoding.Codec.
func (limitingCodec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a protobuf message", message)
	}

	if err := checkLimits(data); err != nil {
		return err
	}

	return proto.Unmarshal(data, m)
}

// checkLimits counts the elements of an encoded QueryTimeSeriesResponse.
func checkLimits(data []byte) error {
	series, samples := 0, 0
	for len(data) > 0 {
		number, value, n := consumeField(data)
		if n < 0 {
			return protowire.ParseError(n)
		}

		// Only field 1 holds series; unknown fields are skipped, as protobuf does.
		data = data[n:]
		if number != 1 {
			continue
		}

		labels := 0
		for len(value) > 0 {
			number, _, n := consumeField(value)
			if n < 0 {
				return protowire.ParseError(n)
			}

			value = value[n:]
			switch number {
			case 1:
				labels++
			case 2:
				samples++
			}
		}

		series++

		switch {
		case series > maxSeries:
			return errTooManySeries
		case labels > maxLabels:
			return errTooManyLabels
		case samples > maxSamples:
			return errTooManySamples
		}
	}

	return nil
}

// consumeField reads one field; value is nil unless it is length-delimited. n is negative for invalid data.
func consumeField(data []byte) (number protowire.Number, value []byte, n int) {
	number, kind, tag := protowire.ConsumeTag(data)
	if tag < 0 {
		return 0, nil, tag
	}

	n = protowire.ConsumeFieldValue(number, kind, data[tag:])
	if n < 0 {
		return 0, nil, n
	}

	if kind == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(data[tag:])
	}

	return number, value, tag + n
}
