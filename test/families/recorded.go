// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package families

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"crane.io/crane/pkg/series"
)

// RecordedFamily is a directory of recorded series of one origin, in ../shared beside the repository or in the directory
// $CRANE_SERIES. Families of one group share workloads: none is used to choose parameters for another of its group.
type RecordedFamily struct{ Name, Group, pattern string }

// Recorded returns the families of recorded series.
func Recorded() []RecordedFamily {
	return []RecordedFamily{
		Traces(),
		{"vm-cpu", "vm", "data/vm-cpu/*.csv"},
		{"vm-memory", "vm", "data/vm-memory/*.csv"},
		{"known-cause", "known-cause", "data/known-cause/*.csv"},
		{"requests", "requests", "data/requests/*.csv"},
	}
}

// Traces returns the family of the production traces, which have a sample a minute without gaps.
func Traces() RecordedFamily { return RecordedFamily{"traces", "traces", "traces/workload-*.csv"} }

// RecordedSeries is a series and the name of its file without .csv.
type RecordedSeries struct {
	Name   string
	Series series.Series
}

// Read returns every nth series of the family by name, from the first on. It skips the test where there are none.
func (f RecordedFamily) Read(tb testing.TB, nth int) []RecordedSeries {
	tb.Helper()

	root, err := moduleRoot()
	if err != nil {
		tb.Fatal(err)
	}

	paths, err := filepath.Glob(filepath.Join(seriesRoot(root), f.pattern))
	if err != nil || len(paths) == 0 {
		tb.Skipf("no series %s in ../shared beside the repository or in $CRANE_SERIES", f.pattern)
	}

	var out []RecordedSeries
	for i := 0; i < len(paths); i += nth {
		s, err := readCSV(paths[i])
		if err != nil {
			tb.Fatalf("reading the series %s: %v", paths[i], err)
		}

		out = append(out, RecordedSeries{strings.TrimSuffix(filepath.Base(paths[i]), ".csv"), s})
	}

	return out
}

// seriesRoot returns the directory of the recorded series: $CRANE_SERIES, or ../shared beside the repository.
func seriesRoot(module string) string {
	if dir := os.Getenv("CRANE_SERIES"); dir != "" {
		return dir
	}

	return filepath.Join(module, "..", "shared")
}

// moduleRoot returns the nearest parent of the working directory that contains a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}

	return "", errors.Join(err, errors.New("no go.mod in the parents of the working directory"))
}

// ScoreEach returns the scores of all recorded series by family, in the order of the series.
func ScoreEach[T any](tb testing.TB, score func(family string, s RecordedSeries) T) map[string][]T {
	tb.Helper()

	var scores []func()
	out := map[string][]T{}
	for _, f := range Recorded() {
		all := f.Read(tb, 1)
		results := make([]T, len(all))
		out[f.Name] = results

		for i, s := range all {
			scores = append(scores, func() { results[i] = score(f.Name, s) })
		}
	}

	OnAllCores(scores)
	return out
}

// OnAllCores calls functions, as many at a time as there are cores.
func OnAllCores(all []func()) {
	var group sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, f := range all {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()

			f()
		})
	}

	group.Wait()
}

// LeastLoss returns which of a number of variants has the least sum of losses on the families of other groups, all families alike.
func LeastLoss(variants int, group string, loss func(family string, variant int) float64) int {
	best := 0
	lowest := math.Inf(1)
	for k := range variants {
		sum := 0.0
		for _, f := range Recorded() {
			if f.Group != group {
				sum += loss(f.Name, k)
			}
		}

		if sum < lowest {
			best = k
			lowest = sum
		}
	}

	return best
}
