// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package csv

import (
	"context"
	"fmt"
	"iter"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// Kind is the kind of the workload that represents a file. Kubernetes has no such kind.
const Kind = "Series"

// Source reads the history of workloads from files: each file is a workload of Kind with the name of the file, with one pod and one container
// of that name, in no namespace.
type Source struct {
	files    []File
	resource metrics.Resource
}

// NewSource returns a source whose files hold the usage of a resource, in its unit.
func NewSource(files []File, resource metrics.Resource) *Source {
	return &Source{files: files, resource: resource}
}

// Capabilities returns the reader of the files.
func (s *Source) Capabilities() metrics.Capabilities { return metrics.Capabilities{Usage: s} }

// Span returns the first time of any file and the end of the last; ok is false where no file has values.
func (s *Source) Span() (start, end time.Time, ok bool) {
	for _, f := range s.files {
		if len(f.Series.Values) == 0 {
			continue
		}
		if !ok || f.Series.Start.Before(start) {
			start = f.Series.Start
		}
		if !ok || f.Series.End().After(end) {
			end = f.Series.End()
		}
		ok = true
	}
	return start, end, ok
}

// Usage implements metrics.UsageReader. A zero Start or End means unbounded. A step above that of a file combines its values, CPU by their
// mean and memory by their maximum; a step below it is ignored.
func (s *Source) Usage(ctx context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	if !req.End.IsZero() && !req.Start.Before(req.End) {
		return metrics.Fail[metrics.Chunk](fmt.Errorf("usage from %v to %v: the start must be before the end", req.Start, req.End))
	}
	return func(yield func(metrics.Chunk, error) bool) {
		if req.Resource != s.resource || len(req.Namespaces) > 0 {
			return
		}
		for _, f := range s.files {
			whole, err := s.resample(f.Series, req.Step)
			if err != nil {
				yield(metrics.Chunk{}, fmt.Errorf("series %s: %w", f.Name, err))
				return
			}
			key := metrics.ContainerKey{Workload: workload.Ref{Kind: Kind, Name: f.Name}, Pod: f.Name, Container: f.Name}
			for chunk, err := range metrics.SplitDays(ctx, key, clip(whole, req.Start, req.End)) {
				if !yield(chunk, err) || err != nil {
					return
				}
			}
		}
	}
}

func (s *Source) resample(whole series.Series, step time.Duration) (series.Series, error) {
	if step <= whole.Step || len(whole.Values) == 0 {
		return whole, nil
	}
	if s.resource == metrics.Memory {
		return whole.Resample(step, series.Max)
	}
	return whole.Resample(step, series.Mean)
}

// clip returns the values at or after start and before end; a zero time means unbounded.
func clip(s series.Series, start, end time.Time) series.Series {
	from, to := 0, len(s.Values)
	if !start.IsZero() && start.After(s.Start) {
		from = min(to, int((start.Sub(s.Start)+s.Step-1)/s.Step))
	}
	if !end.IsZero() && end.Before(s.End()) {
		to = max(from, int((end.Sub(s.Start)+s.Step-1)/s.Step))
	}
	return series.Series{Start: s.Time(from), Step: s.Step, Values: s.Values[from:to]}
}
