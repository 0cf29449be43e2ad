// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"iter"
	"time"

	"crane.io/crane/pkg/series"
)

// SplitDays cuts a series at midnight UTC. It leaves out days without samples and gaps at either end of a day. Each chunk holds a copy of
// its values, which the next chunk overwrites.
func SplitDays(ctx context.Context, key ContainerKey, s series.Series) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		var buffer []float64
		for i := 0; i < len(s.Values); {
			if ctx.Err() != nil {
				yield(Chunk{}, context.Cause(ctx))
				return
			}
			midnight := s.Time(i).Truncate(24 * time.Hour).Add(24 * time.Hour)
			next := min(len(s.Values), i+int((midnight.Sub(s.Time(i))+s.Step-1)/s.Step))
			from, to := i, next
			for from < to && series.IsGap(s.Values[from]) {
				from++
			}
			for to > from && series.IsGap(s.Values[to-1]) {
				to--
			}
			i = next
			if from == to {
				continue
			}
			buffer = append(buffer[:0], s.Values[from:to]...)
			if !yield(Chunk{Key: key, Series: series.Series{Start: s.Time(from), Step: s.Step, Values: buffer}}, nil) {
				return
			}
		}
	}
}
