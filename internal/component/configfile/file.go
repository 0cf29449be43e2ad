// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package configfile reloads a configuration file while the process runs. A valid content replaces the one in use; an invalid one
// is reported and the previous content stays in use. The package is independent of the format of the file.
package configfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// DefaultInterval is the polling interval of a file. A kubelet takes up to a minute to update a mounted ConfigMap; reading
	// some kilobytes is cheap.
	DefaultInterval = 10 * time.Second
	// maxSize is the maximum size of a file in bytes, that of a ConfigMap.
	maxSize = 1 << 20
)

// Observer is notified of reloads. Its functions may be nil, are called from one goroutine at a time and must not block for long.
type Observer[T any] struct {
	// Loaded is called with each new content, but not with the one that Open read.
	Loaded func(T)
	// Rejected is called once per error when the file is invalid or cannot be read; the previous content stays in use.
	Rejected func(error)
}

// File is the decoded content of a file. Content is safe for concurrent use and costs an atomic load.
type File[T any] struct {
	path     string
	interval time.Duration
	clock    clock.WithTicker
	decode   func([]byte) (T, error)

	value atomic.Pointer[T]

	reloading sync.Mutex // serializes Reload; locked before mu
	raw       []byte     // the bytes of the last successful load; guarded by reloading
	lastError string     // the last reported error; guarded by reloading

	mu    sync.Mutex
	state State
}

// State is the state of a file for metrics.
type State struct {
	// Loaded is the time at which the content in use was read.
	Loaded time.Time
	// Invalid reports whether the file is invalid and an older content in use.
	Invalid bool
	// Succeeded and Failed count the loaded and the rejected contents.
	Succeeded, Failed float64
}

// Open reads a file, which must exist and be valid. Run reloads it.
func Open[T any](path string, interval time.Duration, clk clock.WithTicker, decode func([]byte) (T, error)) (*File[T], error) {
	if interval <= 0 {
		return nil, fmt.Errorf("%s: the interval between two looks at a file must be more than 0", path)
	}

	f := &File[T]{
		path:     path,
		interval: interval,
		clock:    clk,
		decode:   decode,
	}

	raw, err := read(path)
	if err != nil {
		return nil, err
	}

	value, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	f.raw = raw
	f.setContent(value)
	return f, nil
}

// OpenOptional is like Open, but the file may be missing: until it exists, the content is the default.
func OpenOptional[T any](path string, interval time.Duration, clk clock.WithTicker, decode func([]byte) (T, error), otherwise T) (*File[T], error) {
	f, err := Open(path, interval, clk, decode)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}

	f = Fixed(otherwise, clk)
	f.path = path
	f.interval = interval
	f.decode = decode
	f.lastError = err.Error() // A missing file is no error to report.

	return f, nil
}

// Fixed returns a content without a file; its Run waits for the end of the context.
func Fixed[T any](value T, clk clock.WithTicker) *File[T] {
	f := &File[T]{clock: clk}
	f.setContent(value)
	return f
}

// Content returns the content in use. The caller must not change it.
func (f *File[T]) Content() T { return *f.value.Load() }

// State returns the state of the file for metrics.
func (f *File[T]) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.state
}

// Run polls the file until ctx ends.
func (f *File[T]) Run(ctx context.Context, observer Observer[T]) {
	if f.path == "" {
		<-ctx.Done()
		return
	}

	ticker := f.clock.NewTicker(f.interval)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			f.Reload(observer)
		}
	}
}

// Reload reads the file once and uses its content if that changed. It compares the content and not the modification time, because
// a ConfigMap is updated by swapping symbolic links.
func (f *File[T]) Reload(observer Observer[T]) {
	f.reloading.Lock()
	defer f.reloading.Unlock()

	raw, err := read(f.path)
	if err == nil {
		if bytes.Equal(raw, f.raw) && f.lastError == "" {
			return
		}

		var value T
		value, err = f.decode(raw)
		if err == nil {
			// After an error the old content may be back, which is no change for observers.
			changed := !bytes.Equal(raw, f.raw)
			f.raw = raw
			f.lastError = ""
			f.setContent(value)

			if observer.Loaded != nil && changed {
				observer.Loaded(value)
			}

			return
		}

		err = fmt.Errorf("%s: %w", f.path, err)
	}

	f.reject(err, observer)
}

func (f *File[T]) reject(err error, observer Observer[T]) {
	if f.lastError == err.Error() {
		return
	}

	f.lastError = err.Error()
	f.mu.Lock()
	f.state.Invalid = true
	f.state.Failed++
	f.mu.Unlock()

	if observer.Rejected != nil {
		observer.Rejected(err)
	}
}

func (f *File[T]) setContent(value T) {
	f.value.Store(&value)
	f.mu.Lock()
	defer f.mu.Unlock()

	f.state.Loaded = f.clock.Now()
	f.state.Invalid = false
	f.state.Succeeded++
}

func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	raw, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}

	if len(raw) > maxSize {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxSize)
	}

	return raw, nil
}
