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
	// DefaultPath is the mount path of the policy in gocrane's manifests.
	DefaultPath = "/etc/kubernetes/policy.yaml"
	// DefaultInterval is the interval between reads of the file.
	DefaultInterval = configfile.DefaultInterval
)

// Observer is notified of changes of the file. Its methods are called from one goroutine at a time and must not block
// for long.
type Observer interface {
	// PolicyLoaded is called when a policy comes into force after Open.
	PolicyLoaded(*nodeload.Policy)
	// PolicyRefused is called once per invalid content or unreadable file: the old policy stays in force.
	PolicyRefused(error)
}

// File is a policy that follows its file. Policy is safe for concurrent use and costs an atomic load.
type File struct {
	file *configfile.File[*nodeload.Policy]
}

// Open reads a file that must exist and be valid. Run follows it.
func Open(path string, interval time.Duration, clk clock.WithTicker) (*File, error) {
	file, err := configfile.Open(path, interval, clk, Decode)
	if err != nil {
		return nil, err
	}

	return &File{file: file}, nil
}

// Fixed returns a policy without a file: Run returns when its context ends.
func Fixed(policy *nodeload.Policy, clk clock.WithTicker) *File {
	return &File{file: configfile.Fixed(policy, clk)}
}

// Policy returns the policy in force. It must not be changed.
func (f *File) Policy() *nodeload.Policy { return f.file.Content() }

// Run reloads the file until ctx ends. The observer may be nil.
func (f *File) Run(ctx context.Context, observer Observer) { f.file.Run(ctx, observed(observer)) }

func observed(o Observer) configfile.Observer[*nodeload.Policy] {
	if o == nil {
		return configfile.Observer[*nodeload.Policy]{}
	}

	return configfile.Observer[*nodeload.Policy]{Loaded: o.PolicyLoaded, Rejected: o.PolicyRefused}
}
