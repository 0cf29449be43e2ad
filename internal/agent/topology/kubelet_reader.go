// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"bytes"
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

	"crane.io/crane/internal/agent/durablefile"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/kubeletsocket"
	"crane.io/crane/internal/component/atomicfile"
)

const (
	// maxConfigurationBytes limits the kubelet's answer.
	maxConfigurationBytes = host.MaxKubeletFileBytes
	// kubeletQueryInterval is the interval of queries unless the kubelet restarts. The kubelet asks the API server to authorize each:
	// 5,000 nodes cause some 30 requests a second.
	kubeletQueryInterval = 5 * time.Minute
)

// KubeletReader reads the kubelet's configuration. It is not safe for concurrent use.
type KubeletReader struct {
	Root host.Root
	// Dir is the kubelet's root directory on the host, such as /var/lib/kubelet.
	Dir string
	// File is its configuration file on the host; empty for config.yaml in Dir.
	File string
	// Client queries the kubelet; nil without an API server that authenticates both.
	Client *KubeletClient
	// AnswerPath is a file that keeps the kubelet's last answer for the next agent, which may start while the API server that authenticates
	// queries does not answer; empty for none.
	AnswerPath string
	// Assignments are what the kubelet's socket reports, used where its state files are not visible, as in a pod; nil for none.
	Assignments kubeletsocket.Source
	Clock       clock.PassiveClock

	// savedAnswer is the content of the file; answerLoaded is set after it was read.
	savedAnswer  []byte
	answerLoaded bool
	// lastConfig is the kubelet's last answer, valid if hasConfig.
	lastConfig KubeletConfig
	hasConfig  bool
	nextQuery  time.Time // no query before
	startedAt  time.Time // start of the kubelet; zero for unknown
	// lastError is the error of the last query; nil if it succeeded.
	lastError error
	saveError error
}

// LastError returns the error of the last query; nil if it succeeded or there is no client.
func (r *KubeletReader) LastError() error { return r.lastError }

// SaveError returns why the last answer is not kept for the next agent; nil if it is.
func (r *KubeletReader) SaveError() error { return r.saveError }

// Read returns the configuration of the kubelet of a node, which is nil if unknown. It queries the kubelet after its start and at
// intervals, because only its answer includes flags and drop-in files. The last answer stays valid while the kubelet does not answer.
// Without any answer the file is read, but not before the kubelet could be queried, since the two may differ. A static policy in a state
// file of the kubelet, or by its socket, always applies; it changes only when the kubelet restarts.
func (r *KubeletReader) Read(ctx context.Context, node *corev1.Node) (KubeletConfig, error) {
	if r.Client != nil {
		r.loadAnswer()
	}

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

	staticCPUs := func(a kubeletsocket.Assignments) bool { return a.StaticCPUs }
	staticMemory := func(a kubeletsocket.Assignments) bool { return a.StaticMemory }
	err := errors.Join(r.applyStateFile("cpu_manager_state", staticCPUs, &k.Static, &k),
		r.applyStateFile("memory_manager_state", staticMemory, &k.StaticMemory, &k))

	return k, err
}

// Known returns the configuration that is known without a query: the kubelet's last answer, also to the previous agent, else its file. The
// result is empty if there is neither.
func (r *KubeletReader) Known() KubeletConfig {
	r.loadAnswer()
	if r.hasConfig {
		return r.lastConfig
	}

	k, err := r.readFile()
	if err != nil {
		return KubeletConfig{}
	}

	return k
}

// queryKubelet queries the kubelet if due.
func (r *KubeletReader) queryKubelet(ctx context.Context, node *corev1.Node) {
	if r.Client == nil {
		return
	}

	// A restarted kubelet may have another configuration.
	if startedAt := r.readStartTime(); !startedAt.Equal(r.startedAt) {
		r.startedAt = startedAt
		r.nextQuery = time.Time{}
	}

	now := r.Clock.Now()
	if now.Before(r.nextQuery) {
		return
	}

	if node == nil {
		r.lastError = errUnknownEndpoint
		return
	}

	var k KubeletConfig
	var answer *kubeletConfiguration
	content, err := r.Client.Configz(ctx, node)
	if err == nil {
		k, answer, err = parseConfigz(content)
	}
	if err == nil || errors.Is(err, errRefused) {
		r.nextQuery = now.Add(kubeletQueryInterval)
	}

	r.lastError = err

	if err == nil {
		k.Source = "the kubelet (/configz)"
		r.lastConfig = k
		r.hasConfig = true
		r.saveError = r.saveAnswer(answer)
	}
}

const (
	// AnswerFile is the usual name of the file with the kubelet's last answer, answerVersion the version of its format.
	AnswerFile    = "kubelet.json"
	answerVersion = 1
)

// loadAnswer reads the answer that the previous agent got. A missing or damaged file is the same as none: the next answer replaces it.
func (r *KubeletReader) loadAnswer() {
	if r.answerLoaded || r.AnswerPath == "" {
		return
	}

	r.answerLoaded = true
	content, err := host.ReadRegularFile(r.AnswerPath, maxConfigurationBytes)
	if err != nil {
		return
	}

	var answer kubeletConfiguration
	if err := durablefile.Open(answerVersion, content, &answer); err != nil {
		return
	}

	k, err := answer.convert()
	if err != nil {
		return
	}

	k.Source = "the kubelet's answer to the previous agent (" + r.AnswerPath + ")"
	r.savedAnswer = content
	r.lastConfig = k
	r.hasConfig = true
}

// saveAnswer writes the answer for the next agent if it has changed: the fields that are read, since others may be secret.
func (r *KubeletReader) saveAnswer(answer *kubeletConfiguration) error {
	if r.AnswerPath == "" {
		return nil
	}

	content, err := durablefile.Seal(answerVersion, answer)
	if err == nil && !bytes.Equal(content, r.savedAnswer) {
		err = atomicfile.Replace(r.AnswerPath, content)
	}

	if err != nil {
		return err
	}

	r.savedAnswer = content
	return nil
}

// readStartTime returns the start time of the kubelet.
func (r *KubeletReader) readStartTime() time.Time {
	info, err := os.Lstat(r.Root.Path(r.Dir, kubeletsocket.Path))
	if err != nil {
		return time.Time{}
	}

	return info.ModTime()
}

// readFile reads the kubelet's configuration file.
func (r *KubeletReader) readFile() (KubeletConfig, error) {
	path := cmp.Or(r.File, filepath.Join(r.Dir, "config.yaml"))
	content, err := host.ReadKubeletFile(r.Root, path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.lastError != nil:
		return KubeletConfig{}, fmt.Errorf("the kubelet's configuration is unknown: there is no %s, and %w", path, r.lastError)
	case errors.Is(err, fs.ErrNotExist):
		return KubeletConfig{}, fmt.Errorf("the kubelet's configuration is unknown: there is no %s, and no API server (--kubeconfig) to authenticate a query", path)
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

// applyStateFile sets a policy to static if a state file of the kubelet has it, or if its socket reports assignments where the file is not
// visible. A kubelet with neither has none; an unreadable file or a socket without an answer is an error, because its policy is unknown.
func (r *KubeletReader) applyStateFile(file string, assigns func(kubeletsocket.Assignments) bool, isStatic *bool, k *KubeletConfig) error {
	if *isStatic {
		return nil
	}

	policy, err := host.ReadKubeletPolicy(r.Root, r.Dir, file)
	source := file
	if errors.Is(err, fs.ErrNotExist) && r.Assignments != nil {
		var a kubeletsocket.Assignments
		a, err = r.Assignments()
		source = "its socket"
		if err != nil && r.hasConfig && r.lastError == nil {
			return nil // The kubelet's answer has the policy.
		}

		if assigns(a) {
			policy = policyStatic
		}
	}

	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the kubelet's policy is unknown: %w", err)
	}

	if policy == policyStatic {
		*isStatic = true
		k.Source += ", with policy static by " + source
	}

	return nil
}
