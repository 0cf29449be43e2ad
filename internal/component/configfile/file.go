// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package configfile follows a configuration file: what is good in it comes into force while the process runs, what is bad
// leaves the old content in force and is told. It knows neither what is in a file nor who reads it.
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
	// DefaultInterval is the time between two looks at a file. A kubelet takes up to a minute to bring a changed ConfigMap
	// into a pod; reading some kilobytes costs nothing.
	DefaultInterval = 10 * time.Second
	// maxSize bounds what is read; a ConfigMap cannot hold more.
	maxSize = 1 << 20
)

// Observer is told what became of a file. Its functions may be nil, are called from one goroutine at a time and must not
// block for long.
type Observer[T any] struct {
	// Loaded tells of a content that is in force from now on; not of the one of Open.
	Loaded func(T)
	// Rejected tells once of a content that is bad, or of a file that cannot be read: the old content stays in force.
	Rejected func(error)
}

// File is a content that follows its file. Content may be called from any goroutine and costs an atomic load.
type File[T any] struct {
	path     string
	interval time.Duration
	clock    clock.WithTicker
	decode   func([]byte) (T, error)

	value atomic.Pointer[T]

	reloading sync.Mutex // one look at a time; taken before mu
	raw       []byte     // of the last look that could read; guarded by looking
	lastError string     // the error that was told last; guarded by looking

	mu    sync.Mutex
	state State
}

// State is what metrics tell of a file.
type State struct {
	// Loaded is when the content in force was read.
	Loaded time.Time
	// Invalid tells that the file is bad, and an older content in force.
	Invalid bool
	// Succeeded and Failed count the contents that were looked at.
	Succeeded, Failed float64
}

// Open reads a file that must be there and be good. Run follows it.
func Open[T any](path string, interval time.Duration, clk clock.WithTicker, decode func([]byte) (T, error)) (*File[T], error) {
	if interval <= 0 {
		return nil, fmt.Errorf("%s: the interval between two looks at a file must be more than 0", path)
	}
	f := &File[T]{path: path, interval: interval, clock: clk, decode: decode}
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

// OpenOptional is Open for a file that may be missing: until it is there, the content is the default.
func OpenOptional[T any](path string, interval time.Duration, clk clock.WithTicker, decode func([]byte) (T, error), otherwise T) (*File[T], error) {
	f, err := Open(path, interval, clk, decode)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	f = Fixed(otherwise, clk)
	f.path, f.interval, f.decode = path, interval, decode
	f.lastError = err.Error() // A file that is not there is nothing to tell.
	return f, nil
}

// Fixed is a content without a file: Run returns when its context ends.
func Fixed[T any](value T, clk clock.WithTicker) *File[T] {
	f := &File[T]{clock: clk}
	f.setContent(value)
	return f
}

// Content is the content in force. It is not to be changed.
func (f *File[T]) Content() T { return *f.value.Load() }

// State is what metrics tell of the file.
func (f *File[T]) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Run looks at the file until ctx ends.
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

// Reload reads the file once and takes over what is new in it. The content is compared and not the time: a ConfigMap is
// brought into a pod by swapping links.
func (f *File[T]) Reload(observer Observer[T]) {
	f.reloading.Lock()
	defer f.reloading.Unlock()
	raw, err := read(f.path)
	if err == nil {
		if bytes.Equal(raw, f.raw) && f.lastError == "" {
			return
		}
		var value T
		if value, err = f.decode(raw); err == nil {
			changed := !bytes.Equal(raw, f.raw)
			f.raw, f.lastError = raw, ""
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
	f.state.Loaded, f.state.Invalid = f.clock.Now(), false
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
