// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/host"
)

const (
	// maxConfigurationBytes bounds what a kubelet may answer.
	maxConfigurationBytes = host.MaxKubeletFileBytes
	// kubeletQueryInterval is how often the kubelet is asked for it where nothing tells that it was started anew. It asks the API server in turn who
	// asks: 5,000 nodes make some 30 requests a second of it.
	kubeletQueryInterval = 5 * time.Minute
	// socketFile is a file that a kubelet makes anew when it starts, which is when its configuration changes.
	socketFile = "pod-resources/kubelet.sock"
)

// KubeletReader finds a kubelet's configuration. It is not safe for concurrent use.
type KubeletReader struct {
	Root host.Root
	// Dir is the kubelet's root directory as the host sees it, such as /var/lib/kubelet.
	Dir string
	// File is its configuration, as the host sees it; empty for config.yaml in Dir.
	File string
	// Client asks the kubelet; nil where there is no API server by which both know each other.
	Client *KubeletClient
	Clock  clock.PassiveClock

	// lastConfig is what the kubelet has said, where known.
	lastConfig KubeletConfig
	hasConfig  bool
	nextQuery  time.Time // the kubelet is not asked before
	startedAt  time.Time // when it started; zero where that is not known
	// lastError is why the kubelet has said nothing when it was asked last; nil where it has.
	lastError error
}

// LastError is why the kubelet did not say what its configuration is when it was asked last; nil where it did, or where nobody asks.
func (r *KubeletReader) LastError() error { return r.lastError }

// Read asks the kubelet of a node, which is nil where it is not known, at its start and now and then: only what the kubelet says itself has
// its flags and drop-in files in it. While it does not answer, what it said last holds. Where it has never answered its file is read, but not
// before it could be asked: what the two say may differ. Whatever they say, a kubelet assigns CPUs itself that says so in its state file,
// which changes with its start.
func (r *KubeletReader) Read(ctx context.Context, node *corev1.Node) (KubeletConfig, error) {
	r.queryKubelet(ctx, node)
	k := r.lastConfig
	switch {
	case r.hasConfig:
	case errors.Is(r.lastError, errUnknownEndpoint):
		return KubeletConfig{}, r.lastError
	default:
		var err error
		if k, err = r.readFile(); err != nil {
			return KubeletConfig{}, err
		}
	}
	r.applyStateFile("cpu_manager_state", &k.Static, &k)
	r.applyStateFile("memory_manager_state", &k.StaticMemory, &k)
	return k, nil
}

// queryKubelet asks the kubelet where that is due.
func (r *KubeletReader) queryKubelet(ctx context.Context, node *corev1.Node) {
	if r.Client == nil {
		return
	}
	if born := r.readStartTime(); !born.Equal(r.startedAt) {
		r.startedAt, r.nextQuery = born, time.Time{}
	}
	now := r.Clock.Now()
	if now.Before(r.nextQuery) {
		return
	}
	if node == nil {
		r.lastError = errUnknownEndpoint
		return
	}
	content, err := r.Client.Configz(ctx, node)
	var k KubeletConfig
	if err == nil {
		k, err = parseConfigz(content)
	}
	if err == nil || errors.Is(err, errRefused) {
		r.nextQuery = now.Add(kubeletQueryInterval)
	}
	if r.lastError = err; err == nil {
		k.Source = "the kubelet (/configz)"
		r.lastConfig, r.hasConfig = k, true
	}
}

// readStartTime is when the kubelet started.
func (r *KubeletReader) readStartTime() time.Time {
	info, err := os.Lstat(r.Root.Path(r.Dir, socketFile))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// readFile reads the kubelet's file.
func (r *KubeletReader) readFile() (KubeletConfig, error) {
	path := cmp.Or(r.File, filepath.Join(r.Dir, "config.yaml"))
	content, err := host.ReadKubeletFile(r.Root, path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.lastError != nil:
		return KubeletConfig{}, fmt.Errorf("the kubelet's configuration is not known: there is no %s, and %w", path, r.lastError)
	case errors.Is(err, fs.ErrNotExist):
		return KubeletConfig{}, fmt.Errorf("the kubelet's configuration is not known: there is no %s, and no API server (--kubeconfig) by which the kubelet knows who asks it", path)
	case err != nil:
		return KubeletConfig{}, fmt.Errorf("the kubelet's configuration: %w", err)
	}
	k, err := ParseKubelet(content)
	if err != nil {
		return KubeletConfig{}, fmt.Errorf("the kubelet's configuration %s: %w", path, err)
	}
	k.Source = path
	return k, nil
}

// applyStateFile notes that a kubelet says in a state file that its policy is static, where nothing else does.
func (r *KubeletReader) applyStateFile(file string, isStatic *bool, k *KubeletConfig) {
	if *isStatic {
		return
	}
	// A file that is not there, or cannot be read, says nothing.
	if policy, err := host.ReadKubeletPolicy(r.Root, r.Dir, file); err == nil && policy == policyStatic {
		*isStatic = true
		k.Source += ", with policy static by its " + file
	}
}
