// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	"crane.io/crane/pkg/series"
)

// VisitDays hands a series on as chunks, cut at midnight UTC. Days without any sample are left out, gaps at the ends of a day as well. The
// visitor gets a copy, as it may change what it is given.
func VisitDays(ctx context.Context, key ContainerKey, s series.Series, visit func(Chunk) error) error {
	var buffer []float64
	for i := 0; i < len(s.Values); {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
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
		if err := visit(Chunk{Key: key, Series: series.Series{Start: s.Time(from), Step: s.Step, Values: buffer}}); err != nil {
			return err
		}
	}
	return nil
}
