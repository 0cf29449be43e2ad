// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package csv

import (
	"context"
	"fmt"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// Kind is the kind of the workload that stands for a file. It is none of Kubernetes's.
const Kind = "Series"

// Source serves files as the history of workloads: each file is a workload of Kind with the name of the file, and has
// one pod and one container of that name, in no namespace.
type Source struct {
	files    []File
	resource metrics.Resource
}

var _ metrics.UsageReader = (*Source)(nil)

// NewSource takes files as uses of a resource: cores, or bytes.
func NewSource(files []File, resource metrics.Resource) *Source {
	return &Source{files: files, resource: resource}
}

// Span is from the first time of any file to the end of the last; ok is false where there is none.
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

// Usage implements metrics.UsageReader. A zero Start or End is no bound. A step above that of a file joins its values,
// CPU by their mean and memory by their maximum; a step below it is ignored, for there is nothing in between.
func (s *Source) Usage(ctx context.Context, req metrics.UsageRequest, visit func(metrics.Chunk) error) error {
	if !req.End.IsZero() && !req.Start.Before(req.End) {
		return fmt.Errorf("usage from %v to %v: the start must be before the end", req.Start, req.End)
	}
	if req.Resource != s.resource || len(req.Namespaces) > 0 {
		return nil
	}
	for _, f := range s.files {
		whole, err := s.resample(f.Series, req.Step)
		if err != nil {
			return fmt.Errorf("series %s: %w", f.Name, err)
		}
		key := metrics.ContainerKey{Workload: workload.Ref{Kind: Kind, Name: f.Name}, Pod: f.Name, Container: f.Name}
		if err := metrics.VisitDays(ctx, key, clip(whole, req.Start, req.End), visit); err != nil {
			return err
		}
	}
	return nil
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

// clip keeps the values at or after start and before end.
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
