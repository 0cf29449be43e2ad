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
	// maxConfiguration bounds what a kubelet may answer.
	maxConfiguration = host.MaxKubeletFile
	// askAgain is how often the kubelet is asked for it where nothing tells that it was started anew. It asks the API server in turn who
	// asks: 5,000 nodes make some 30 requests a second of it.
	askAgain = 5 * time.Minute
	// socket is a file that a kubelet makes anew when it starts, which is when its configuration changes.
	socket = "pod-resources/kubelet.sock"
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

	// last is what the kubelet has said, where known.
	last  Kubelet
	known bool
	next  time.Time // the kubelet is not asked before
	born  time.Time // when it started; zero where that is not known
	// silent is why the kubelet has said nothing when it was asked last; nil where it has.
	silent error
}

// Silent is why the kubelet did not say what its configuration is when it was asked last; nil where it did, or where nobody asks.
func (r *KubeletReader) Silent() error { return r.silent }

// Read asks the kubelet of a node, which is nil where it is not known, at its start and now and then: only what the kubelet says itself has
// its flags and drop-in files in it. While it does not answer, what it said last holds. Where it has never answered its file is read, but not
// before it could be asked: what the two say may differ. Whatever they say, a kubelet assigns CPUs itself that says so in its state file,
// which changes with its start.
func (r *KubeletReader) Read(ctx context.Context, node *corev1.Node) (Kubelet, error) {
	r.ask(ctx, node)
	k := r.last
	switch {
	case r.known:
	case errors.Is(r.silent, errNoNode):
		return Kubelet{}, r.silent
	default:
		var err error
		if k, err = r.readFile(); err != nil {
			return Kubelet{}, err
		}
	}
	r.started("cpu_manager_state", &k.Static, &k)
	r.started("memory_manager_state", &k.StaticMemory, &k)
	return k, nil
}

// ask asks the kubelet where that is due.
func (r *KubeletReader) ask(ctx context.Context, node *corev1.Node) {
	if r.Client == nil {
		return
	}
	if born := r.start(); !born.Equal(r.born) {
		r.born, r.next = born, time.Time{}
	}
	now := r.Clock.Now()
	if now.Before(r.next) {
		return
	}
	if node == nil {
		r.silent = errNoNode
		return
	}
	content, err := r.Client.Configz(ctx, node)
	var k Kubelet
	if err == nil {
		k, err = parseConfigz(content)
	}
	if err == nil || errors.Is(err, errRefused) {
		r.next = now.Add(askAgain)
	}
	if r.silent = err; err == nil {
		k.Source = "the kubelet (/configz)"
		r.last, r.known = k, true
	}
}

// start is when the kubelet started.
func (r *KubeletReader) start() time.Time {
	info, err := os.Lstat(r.Root.Path(r.Dir, socket))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// readFile reads the kubelet's file.
func (r *KubeletReader) readFile() (Kubelet, error) {
	path := cmp.Or(r.File, filepath.Join(r.Dir, "config.yaml"))
	content, err := host.ReadKubeletFile(r.Root, path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.silent != nil:
		return Kubelet{}, fmt.Errorf("the kubelet's configuration is not known: there is no %s, and %w", path, r.silent)
	case errors.Is(err, fs.ErrNotExist):
		return Kubelet{}, fmt.Errorf("the kubelet's configuration is not known: there is no %s, and no API server (--kubeconfig) by which the kubelet knows who asks it", path)
	case err != nil:
		return Kubelet{}, fmt.Errorf("the kubelet's configuration: %w", err)
	}
	k, err := ParseKubelet(content)
	if err != nil {
		return Kubelet{}, fmt.Errorf("the kubelet's configuration %s: %w", path, err)
	}
	k.Source = path
	return k, nil
}

// started notes that a kubelet says in a state file that its policy is static, where nothing else does.
func (r *KubeletReader) started(file string, isStatic *bool, k *Kubelet) {
	if *isStatic {
		return
	}
	// A file that is not there, or cannot be read, says nothing.
	if policy, err := host.KubeletPolicy(r.Root, r.Dir, file); err == nil && policy == static {
		*isStatic = true
		k.Source += ", with policy static by its " + file
	}
}
