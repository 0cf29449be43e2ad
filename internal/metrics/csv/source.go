// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csv reads series from files, as a source of history without Prometheus, for traces and for tests. It must not depend on the meaning
// of the values.
//
// # Format
//
// The first line is ts,value. Each further line is a time and a value: 1633017600,0.25. The time is in seconds since the Unix epoch, whole or
// with decimals, or in RFC 3339 (2021-10-01T00:00:00Z). The value is a decimal number. A byte order mark, CRLF, blank lines, and spaces or
// double quotes around fields are accepted.
//
// # Irregular input
//
//   - The step of the series is the most common time between neighboring rows, of equally common ones the smallest. A single row has a step
//     of one minute.
//   - Rows are sorted by time; of several rows with one time, or for one cell of the grid, the last wins. They are counted and accepted, as
//     files are often joined from parts.
//   - A time off the grid moves to the nearest cell.
//   - A missing row is a gap, and so are an empty value, NaN, an infinite and a negative value.
//   - Text that is not a number is an error with the file and line.
//   - A file whose grid would have more than MaxCells cells is an error with its longest gap.
package csv

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
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
	resource metrics.UsageKind
}

// NewSource returns a source whose files hold the usage of a resource, in its unit.
func NewSource(files []File, resource metrics.UsageKind) *Source {
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
			resampled, err := s.resample(f.Series, req.Step)
			if err != nil {
				yield(metrics.Chunk{}, fmt.Errorf("series %s: %w", f.Name, err))
				return
			}

			key := metrics.ContainerKey{Workload: workload.Ref{Kind: Kind, Name: f.Name}, Pod: f.Name, Container: f.Name}
			for chunk, err := range metrics.SplitDays(ctx, key, clip(resampled, req.Start, req.End)) {
				if !yield(chunk, err) || err != nil {
					return
				}
			}
		}
	}
}

func (s *Source) resample(original series.Series, step time.Duration) (series.Series, error) {
	if step <= original.Step || len(original.Values) == 0 {
		return original, nil
	}

	if s.resource == metrics.Memory {
		return original.Resample(step, series.Max)
	}

	return original.Resample(step, series.Mean)
}

// clip returns the values at or after start and before end; a zero time means unbounded.
func clip(s series.Series, start, end time.Time) series.Series {
	from := 0
	to := len(s.Values)
	if !start.IsZero() && start.After(s.Start) {
		from = min(to, int((start.Sub(s.Start)+s.Step-1)/s.Step))
	}
	if !end.IsZero() && end.Before(s.End()) {
		to = max(from, int((end.Sub(s.Start)+s.Step-1)/s.Step))
	}

	return series.Series{Start: s.Time(from), Step: s.Step, Values: s.Values[from:to]}
}

// Limits on the size of a file.
const (
	// MaxCells bounds the grid of a series: four years of minutes, 16 MiB.
	MaxCells = 1 << 21
	// maxLine bounds a line, in bytes.
	maxLine = 4 << 10
)

// ErrNotSeries means that a file does not begin with the line ts,value. ReadDir skips such files.
var ErrNotSeries = errors.New(`the first line is not "ts,value"`)

// File is a series read from a file.
type File struct {
	// Name is the file name without .csv.
	Name string
	// Series is on a regular grid with explicit gaps; it is empty for a file without rows.
	Series series.Series
	// Rows of the file, without header and blank lines.
	Rows int
	// Invalid counts rows whose value became a gap, as it is infinite or negative. Replaced counts rows with a later one for the same cell.
	Invalid, Replaced int
}

// Samples returns the number of values that are not gaps.
func (f File) Samples() int {
	n := 0
	for _, v := range f.Series.Values {
		if !series.IsGap(v) {
			n++
		}
	}

	return n
}

// Skipped is a directory entry that is not a series, with the reason.
type Skipped struct{ Path, Reason string }

// String returns a line for the user.
func (s Skipped) String() string { return fmt.Sprintf("skipping %s: %s", s.Path, s.Reason) }

// ReadDir reads every series in a directory, ordered by name. It skips entries whose name is not *.csv, files with another first line or
// without samples, and subdirectories. A file that begins like a series and is invalid later is an error.
func ReadDir(dir string) ([]File, []Skipped, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("reading series: %w", err)
	}

	var files []File
	var skipped []Skipped
	skip := func(path, reason string) { skipped = append(skipped, Skipped{Path: path, Reason: reason}) }
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path) // Follows links.
		switch {
		case err != nil:
			skip(path, "it cannot be opened")
			continue
		case info.IsDir():
			skip(path, "it is a directory")
			continue

		case !info.Mode().IsRegular():
			skip(path, "it is not a regular file")
			continue
		case !strings.EqualFold(filepath.Ext(e.Name()), ".csv"):
			skip(path, "its name does not end in .csv")
			continue
		}

		f, err := ReadFile(path)
		switch {
		case errors.Is(err, ErrNotSeries):
			skip(path, ErrNotSeries.Error())
		case err != nil:
			return nil, skipped, err
		case f.Samples() == 0:
			skip(path, "it has no samples")
		default:
			files = append(files, f)
		}
	}

	return files, skipped, nil
}

// ReadFile reads one file.
func ReadFile(path string) (File, error) {
	in, err := os.Open(path)
	if err != nil {
		return File{}, fmt.Errorf("reading series: %w", err)
	}
	defer in.Close()

	f, err := Read(in, path)
	if err != nil {
		return File{}, err
	}

	base := filepath.Base(path)
	f.Name = strings.TrimSuffix(base, filepath.Ext(base))
	return f, nil
}

// Read reads the content of a file. Errors begin with the name and line; an error wraps ErrNotSeries where the first line differs.
func Read(r io.Reader, name string) (File, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxLine), maxLine)

	if !lines.Scan() || !isHeader(lines.Bytes()) {
		if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
			return File{}, fmt.Errorf("%s: %w", name, err)
		}

		return File{}, fmt.Errorf("%s:1: %w", name, ErrNotSeries)
	}

	f := File{Name: name}
	var rows []row
	number := 1
	for lines.Scan() {
		number++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}

		if len(rows) == MaxCells {
			return File{}, fmt.Errorf("%s:%d: more than %d rows: split the file", name, number, MaxCells)
		}

		r, invalid, err := parseRow(line)
		if err != nil {
			return File{}, fmt.Errorf("%s:%d: %w", name, number, err)
		}

		if invalid {
			f.Invalid++
		}

		r.line = number
		rows = append(rows, r)
	}

	// The scanner stops before the line that it cannot read, which is the one after the last number.
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line of more than %d bytes", maxLine)
		}

		return File{}, fmt.Errorf("%s:%d: %w", name, number+1, err)
	}

	f.Rows = len(rows)
	var err error
	if f.Series, f.Replaced, err = toGrid(rows); err != nil {
		return File{}, fmt.Errorf("%s:%w", name, err)
	}

	return f, nil
}

func isHeader(line []byte) bool {
	line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	ts, value, ok := bytes.Cut(line, []byte(","))
	return ok && strings.EqualFold(field(ts), "ts") && strings.EqualFold(field(value), "value")
}

// field returns the text of a field without surrounding spaces and quotes.
func field(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	if n := len(raw); n >= 2 && raw[0] == '"' && raw[n-1] == '"' {
		raw = bytes.TrimSpace(raw[1 : n-1])
	}

	return string(raw)
}
