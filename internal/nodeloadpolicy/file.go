// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeloadpolicy

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

	"crane.io/crane/pkg/nodeload"
)

const (
	// DefaultPath is where gocrane's manifests mount the policy of the controller.
	DefaultPath = "/etc/kubernetes/policy.yaml"
	// DefaultInterval is the time between two looks at the file. A kubelet takes up to a minute to bring a changed
	// ConfigMap into a pod; reading some kilobytes costs nothing.
	DefaultInterval = 10 * time.Second
	// maxSize bounds what is read; a ConfigMap cannot hold more.
	maxSize = 1 << 20
)

// Observer is told what became of a file. Its methods are called from one goroutine at a time and must not block for
// long.
type Observer interface {
	// PolicyLoaded tells of a policy that is in force from now on; not of the one of Open.
	PolicyLoaded(*nodeload.Policy)
	// PolicyRefused tells once of a content that is bad, or of a file that cannot be read: the old policy stays in force.
	PolicyRefused(error)
}

// File is a policy that follows its file. Policy may be called from any goroutine and costs an atomic load.
type File struct {
	path     string
	interval time.Duration
	clock    clock.WithTicker

	policy atomic.Pointer[nodeload.Policy]

	looking sync.Mutex // one look at a time; taken before mu
	content []byte     // of the last look that could read; guarded by looking
	refused string     // the error that was told last; guarded by looking

	mu    sync.Mutex
	state state
}

// state is what the metrics tell.
type state struct {
	loaded            time.Time
	invalid           bool
	succeeded, failed float64
}

// Open reads a file that must be there and be good. Run follows it.
func Open(path string, interval time.Duration, clk clock.WithTicker) (*File, error) {
	if interval <= 0 {
		return nil, errors.New("the interval between two looks at the policy must be more than 0")
	}
	f := &File{path: path, interval: interval, clock: clk}
	content, err := read(path)
	if err != nil {
		return nil, err
	}
	policy, err := Decode(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.content = content
	f.adopt(policy)
	return f, nil
}

// Fixed is a policy without a file: Run returns when its context ends.
func Fixed(policy *nodeload.Policy, clk clock.WithTicker) *File {
	f := &File{clock: clk}
	f.adopt(policy)
	return f
}

// Policy is the policy in force. It is not to be changed.
func (f *File) Policy() *nodeload.Policy { return f.policy.Load() }

// Run looks at the file until ctx ends. The observer may be nil.
func (f *File) Run(ctx context.Context, observer Observer) {
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
			f.Look(observer)
		}
	}
}

// Look reads the file once and takes over what is new in it. The content is compared and not the time: a ConfigMap is
// brought into a pod by swapping links.
func (f *File) Look(observer Observer) {
	f.looking.Lock()
	defer f.looking.Unlock()
	content, err := read(f.path)
	if err == nil {
		if bytes.Equal(content, f.content) && f.refused == "" {
			return
		}
		var policy *nodeload.Policy
		if policy, err = Decode(content); err == nil {
			changed := !bytes.Equal(content, f.content)
			f.content, f.refused = content, ""
			f.adopt(policy)
			if observer != nil && changed {
				observer.PolicyLoaded(policy)
			}
			return
		}
		err = fmt.Errorf("%s: %w", f.path, err)
	}
	f.refuse(err, observer)
}

func (f *File) refuse(err error, observer Observer) {
	again := f.refused == err.Error()
	f.refused = err.Error()
	f.mu.Lock()
	f.state.invalid = true
	if !again {
		f.state.failed++
	}
	f.mu.Unlock()
	if observer != nil && !again {
		observer.PolicyRefused(err)
	}
}

func (f *File) adopt(policy *nodeload.Policy) {
	f.policy.Store(policy)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.loaded, f.state.invalid = f.clock.Now(), false
	f.state.succeeded++
}

func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // The error names the path.
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(content) > maxSize {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxSize)
	}
	return content, nil
}
