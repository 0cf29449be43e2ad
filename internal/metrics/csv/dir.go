// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package csv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
)

// maxFiles bounds the entries of a Dir.
const maxFiles = 100_000

// Dir reads the history of a cluster's workloads from a directory of files. A file is named
//
//	NAMESPACE_KIND_WORKLOAD_CONTAINER_RESOURCE.csv
//
// where no part contains an underscore, RESOURCE is cpu (cores) or memory (bytes), and the values are those of one pod, or the maximum of
// all pods. Each request reads the files again, one at a time, and skips those with other names.
type Dir struct{ path string }

// OpenDir returns the history in a directory, which must exist.
func OpenDir(path string) (Dir, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Dir{}, fmt.Errorf("reading series: %w", err)
	}

	if !info.IsDir() {
		return Dir{}, fmt.Errorf("reading series: %s is no directory", path)
	}

	return Dir{path: path}, nil
}

// Capabilities returns the reader of the history.
func (d Dir) Capabilities() metrics.Capabilities { return metrics.Capabilities{Usage: d} }

// Check returns an error if the directory cannot be read.
func (d Dir) Check(context.Context) error {
	_, err := d.list()
	return err
}

func (d Dir) list() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("reading series: %w", err)
	}

	if len(entries) > maxFiles {
		return nil, fmt.Errorf("reading series: %s has %d entries, more than %d", d.path, len(entries), maxFiles)
	}

	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Name()
	}

	return out, nil
}

// Usage implements metrics.UsageReader.
func (d Dir) Usage(ctx context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		names, err := d.list()
		if err != nil {
			yield(metrics.Chunk{}, metrics.WithPublicMessage(err, "the directory of data source csv cannot be read"))
			return
		}

		for _, name := range names {
			key, resource, ok := parseName(name)
			if !ok || resource != req.Resource || len(req.Namespaces) > 0 && !slices.Contains(req.Namespaces, key.Workload.Namespace) {
				continue
			}

			file, err := ReadFile(filepath.Join(d.path, name))
			if errors.Is(err, ErrNotSeries) || errors.Is(err, os.ErrNotExist) {
				continue // Another kind of file with that name, or one that was just removed.
			}
			if err != nil { // The name of the file may be that of another namespace's workload.
				yield(metrics.Chunk{}, metrics.WithPublicMessage(err, "a file of data source csv cannot be read"))
				return
			}

			all := req
			all.Namespaces = nil // The namespace is in the name of the file.
			for chunk, err := range NewSource([]File{file}, resource).Usage(ctx, all) {
				chunk.Key = key
				if !yield(chunk, err) || err != nil {
					return
				}
			}
		}
	}
}

// parseName parses the name of a file.
func parseName(name string) (metrics.ContainerKey, metrics.UsageKind, bool) {
	if !strings.EqualFold(filepath.Ext(name), ".csv") {
		return metrics.ContainerKey{}, "", false
	}

	parts := strings.Split(strings.TrimSuffix(name, filepath.Ext(name)), "_")
	if len(parts) != 5 || slices.Contains(parts, "") {
		return metrics.ContainerKey{}, "", false
	}

	resource := metrics.UsageKind(parts[4])
	if resource != metrics.CPU && resource != metrics.Memory {
		return metrics.ContainerKey{}, "", false
	}

	ref := workload.Ref{Namespace: parts[0], Kind: parts[1], Name: parts[2]}
	return metrics.ContainerKey{Workload: ref, Pod: ref.Name, Container: parts[3]}, resource, true
}
