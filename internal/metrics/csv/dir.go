// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package csv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
)

// maxFiles bounds the files of a Dir that are looked at.
const maxFiles = 100_000

// Dir serves a directory of files as the history of a cluster's workloads. A file is named
//
//	NAMESPACE_KIND_WORKLOAD_CONTAINER_RESOURCE.csv
//
// where no part can have an underscore of its own, RESOURCE is cpu (cores) or memory (bytes), and the values are those of
// one pod, or the most of any. Files are read anew with each question, one at a time; those with other names are skipped.
type Dir struct{ path string }

var _ metrics.UsageReader = Dir{}

// OpenDir returns the history in a directory that exists.
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

// Check tells whether the directory can be read.
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
func (d Dir) Usage(ctx context.Context, req metrics.UsageRequest, visit func(metrics.Chunk) error) error {
	names, err := d.list()
	if err != nil {
		return err
	}
	for _, name := range names {
		key, resource, ok := parseName(name)
		if !ok || resource != req.Resource || len(req.Namespaces) > 0 && !slices.Contains(req.Namespaces, key.Workload.Namespace) {
			continue
		}
		file, err := ReadFile(filepath.Join(d.path, name))
		if errors.Is(err, ErrNotSeries) || errors.Is(err, os.ErrNotExist) {
			continue // Another file of that name, or one that has just been taken away.
		}
		if err != nil {
			return err
		}
		one := NewSource([]File{file}, resource)
		all := req
		all.Namespaces = nil // The file has none; its name has told.
		if err := one.Usage(ctx, all, func(c metrics.Chunk) error {
			c.Key = key
			return visit(c)
		}); err != nil {
			return err
		}
	}
	return nil
}

// parseName reads what a file is of from its name.
func parseName(name string) (metrics.ContainerKey, metrics.Resource, bool) {
	if !strings.EqualFold(filepath.Ext(name), ".csv") {
		return metrics.ContainerKey{}, "", false
	}
	parts := strings.Split(strings.TrimSuffix(name, filepath.Ext(name)), "_")
	if len(parts) != 5 || slices.Contains(parts, "") {
		return metrics.ContainerKey{}, "", false
	}
	resource := metrics.Resource(parts[4])
	if resource != metrics.CPU && resource != metrics.Memory {
		return metrics.ContainerKey{}, "", false
	}
	ref := workload.Ref{Namespace: parts[0], Kind: parts[1], Name: parts[2]}
	return metrics.ContainerKey{Workload: ref, Pod: ref.Name, Container: parts[3]}, resource, true
}
