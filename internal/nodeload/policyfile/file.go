// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policyfile

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/component/configfile"
	"crane.io/crane/pkg/nodeload"
)

const (
	// DefaultPath is where gocrane's manifests mount the policy of the controller.
	DefaultPath = "/etc/kubernetes/policy.yaml"
	// DefaultInterval is the time between two looks at the file.
	DefaultInterval = configfile.DefaultInterval
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
	file *configfile.File[*nodeload.Policy]
}

// Open reads a file that must be there and be good. Run follows it.
func Open(path string, interval time.Duration, clk clock.WithTicker) (*File, error) {
	file, err := configfile.Open(path, interval, clk, Decode)
	if err != nil {
		return nil, err
	}
	return &File{file: file}, nil
}

// Fixed is a policy without a file: Run returns when its context ends.
func Fixed(policy *nodeload.Policy, clk clock.WithTicker) *File {
	return &File{file: configfile.Fixed(policy, clk)}
}

// Policy is the policy in force. It is not to be changed.
func (f *File) Policy() *nodeload.Policy { return f.file.Content() }

// Run looks at the file until ctx ends. The observer may be nil.
func (f *File) Run(ctx context.Context, observer Observer) { f.file.Run(ctx, observed(observer)) }

// Look reads the file once and takes over what is new in it.
func (f *File) Look(observer Observer) { f.file.Reload(observed(observer)) }

func observed(o Observer) configfile.Observer[*nodeload.Policy] {
	if o == nil {
		return configfile.Observer[*nodeload.Policy]{}
	}
	return configfile.Observer[*nodeload.Policy]{Loaded: o.PolicyLoaded, Rejected: o.PolicyRefused}
}
