// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cpupinning"
	"crane.io/crane/internal/agent/durablefile"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/podresource"
	"crane.io/crane/internal/agent/signals"
	"crane.io/crane/internal/component/atomicfile"
	"crane.io/crane/pkg/qos"
)

const (
	// handoverFile is the marker in the state directory, handoverVersion the version of its format.
	handoverFile    = "handover.json"
	handoverVersion = 1
	// defaultRestartGrace is more than an image of the agent takes to be pulled and started; maxRestartGrace bounds how long limits of a rule
	// that no longer fires may stay.
	defaultRestartGrace = 2 * time.Minute
	maxRestartGrace     = 30 * time.Minute
	// restartTimeout bounds the requests by which an agent finds out whether another one follows.
	restartTimeout = 5 * time.Second
)

// handover is the marker that an agent leaves when another one follows: its changes stay until that one takes them over, at most until the
// deadline.
type handover struct {
	Deadline time.Time `json:"deadline"`
	// Taint means that the Node may have the agent's taint.
	Taint bool `json:"taint,omitempty"`
}

// restart holds what the previous agent left and whether the changes of this one stay at its end. A nil restart has neither.
type restart struct {
	// marker is the marker that was found; nil for none.
	marker *handover
	// inherited means that the changes of the previous agent are taken over.
	inherited bool
	// newer means that a newer version wrote the marker, which stays: this agent writes none over it.
	newer bool
	keep  atomic.Bool
}

// kept reports whether changes stay at the end, for the next agent.
func (r *restart) kept() bool { return r != nil && r.keep.Load() }

// inheritedUntil returns the time until which the limits of the previous agent stay unless this one sets them; zero if it left none.
func (r *restart) inheritedUntil() time.Time {
	if r == nil || !r.inherited {
		return time.Time{}
	}

	return r.marker.Deadline
}

// leftTaint reports whether the previous agent left its taint to this one.
func (r *restart) leftTaint() bool { return r != nil && r.marker != nil && r.marker.Taint }

func (e environment) handoverPath() string { return filepath.Join(e.StateDir, handoverFile) }

// leftHandover reports whether a previous agent left its changes to this one. Even a dry run undoes them then, since no other agent will.
func (e environment) leftHandover() bool {
	_, err := os.Stat(e.handoverPath())
	return err == nil
}

// readHandover reads and removes the marker of the previous agent. An expired or damaged one, or one too far in the future, means that its
// changes are undone. If this agent is killed its changes are undone by the next start as well. A marker of a newer version stays as it is,
// and the changes are undone as well.
func (e environment) readHandover() *restart {
	r := &restart{}
	content, err := os.ReadFile(e.handoverPath())
	if errors.Is(err, fs.ErrNotExist) {
		return r
	}

	var marker handover
	if err == nil {
		err = durablefile.Open(handoverVersion, content, &marker)
	}

	if errors.Is(err, durablefile.ErrNewer) {
		e.log.Error(err, "keeping the handover of a newer version without using it; undoing the changes of the previous agent and, at the end, of this one",
			"file", e.handoverPath())
		return &restart{marker: &handover{Taint: true}, newer: true} // The taint may be there.
	}

	if err != nil {
		e.log.Error(err, "reading what the previous agent left; undoing its changes", "file", e.handoverPath())
		marker = handover{Taint: true} // The taint may be there.
	}

	if err := os.Remove(e.handoverPath()); err != nil {
		e.log.Error(err, "removing the marker of the previous agent", "file", e.handoverPath())
	}

	r.marker = &marker
	remaining := marker.Deadline.Sub(e.clock.Now())
	r.inherited = remaining > 0 && remaining <= maxRestartGrace

	return r
}

// ownsUnit reports whether this agent enforces the kind of a journal's unit, so that it takes over one of the previous agent.
func (e environment) ownsUnit(key string) bool {
	kind, _, _ := strings.Cut(key, "/")
	switch kind {
	case act.KindCPU:
		return e.enforces(enforceThrottle)
	case act.KindMemory:
		return e.throttlesMemory()
	case podresource.Kind:
		return e.limitsElasticPods()
	case cpupinning.UnitKindCPUs, cpupinning.UnitKindMems, cpupinning.UnitKindQuota:
		return e.pinsCPUs()
	}

	return false
}

// restartManager decides at the end of the agent whether its changes stay for the next one. It is started last, and so stops first.
type restartManager struct {
	environment

	access clusterAccess
	taints bool
}

// newRestartManager returns the manager that keeps changes at the end; none if this agent changes nothing, cannot know whether another
// one follows, or would replace the marker of a newer version.
func (e environment) newRestartManager(access clusterAccess, a executors) []Manager {
	if e.DryRun || e.RestartGrace == 0 || access.api == nil || e.restart == nil || e.restart.newer {
		return nil
	}

	return []Manager{restartManager{e, access, a.tainter != nil}}
}

// Name implements Manager.
func (restartManager) Name() string { return "restart" }

// Run implements Manager.
func (m restartManager) Run(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restartTimeout)
	defer cancel()

	if err := m.followed(ctx); err != nil {
		m.log.Info("undoing all changes, since no other agent follows for certain", "reason", err.Error())
		return nil
	}

	deadline := m.clock.Now().Add(m.RestartGrace)
	content, err := durablefile.Seal(handoverVersion, handover{Deadline: deadline, Taint: m.taints})
	if err == nil {
		err = atomicfile.Replace(m.handoverPath(), content)
	}

	if err != nil {
		return fmt.Errorf("undoing all changes, since the handover to the next agent cannot be written: %w", err)
	}

	m.restart.keep.Store(true)
	m.log.Info("keeping all changes for the next agent", "until", deadline.UTC().Format(time.RFC3339))
	return nil
}

// followed returns why it is not certain that another agent follows on this node; nil if it is: the agent's DaemonSet exists, is not being
// deleted and selects the node.
func (m restartManager) followed(ctx context.Context) error {
	// The own pod names the DaemonSet; only its present state shows whether another pod follows.
	namespace := m.Cluster.podNamespace()

	pods := m.access.view.Pods()
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == podName() })
	if i < 0 {
		return fmt.Errorf("there is no pod %s/%s on this node", namespace, podName())
	}

	owner := metav1.GetControllerOfNoCopy(pods[i])
	if owner == nil || owner.Kind != "DaemonSet" {
		return fmt.Errorf("pod %s/%s belongs to no DaemonSet", namespace, podName())
	}

	node := m.access.view.Node()
	if node == nil {
		return errors.New("the Node is unknown")
	}

	space, err := m.access.api.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("namespace %s: %w", namespace, err)
	}

	set, err := m.access.api.AppsV1().DaemonSets(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("DaemonSet %s/%s: %w", namespace, owner.Name, err)
	}

	selects, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: set.Spec.Template.Spec}).Match(node)
	switch {
	case space.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %s is being deleted", namespace)
	case set.UID != owner.UID || set.DeletionTimestamp != nil:
		return fmt.Errorf("DaemonSet %s/%s is being deleted", namespace, owner.Name)
	case err != nil:
		return fmt.Errorf("node affinity of DaemonSet %s/%s: %w", namespace, owner.Name, err)
	case !selects:
		return fmt.Errorf("DaemonSet %s/%s no longer selects the node", namespace, owner.Name)
	}

	return nil
}

// podNamespace returns the namespace of the agent's own pod: $POD_NAMESPACE, else Crane's namespace.
func (o *ClusterOptions) podNamespace() string {
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		return namespace
	}

	return o.Namespace
}

// podName returns the name of the agent's own pod: $POD_NAME, else the host's name, which is that of the pod unless it uses the host's
// network.
func podName() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}

	name, err := os.Hostname()
	if err != nil {
		return ""
	}

	return name
}

// inheritLimits records the limits of the previous agent once their containers are measured: the decisions then know the original limits, and
// that a container may request more than it was left.
func (l *loop) inheritLimits(snapshot *observe.Snapshot) {
	if len(l.inheritedCPU)+len(l.inheritedMemory) == 0 {
		return
	}

	ids := map[string]string{}
	for id, group := range snapshot.ContainerGroups() {
		ids[group] = id
	}

	l.inheritedCPU = slices.DeleteFunc(l.inheritedCPU, func(limit act.InheritedLimit[cgroup.Bandwidth]) bool {
		id, ok := ids[limit.Group]
		if ok {
			l.state.InheritQuota(id, signals.QuotaOf(limit.Original), signals.QuotaOf(limit.Set))
		}

		return ok
	})

	l.inheritedMemory = slices.DeleteFunc(l.inheritedMemory, func(limit act.InheritedLimit[qos.MemoryHigh]) bool {
		id, ok := ids[limit.Group]
		if ok {
			l.state.InheritMemoryHigh(id, limit.Original, limit.Set)
		}

		return ok
	})
}

// undoInherited restores the limits of the previous agent that this one has not set since, after the deadline. Failures are retried.
func (l *loop) undoInherited(now time.Time) {
	if l.inheritedUntil.IsZero() || now.Before(l.inheritedUntil) {
		return
	}

	l.inheritedUntil = time.Time{}
	var errs []error
	if l.throttler != nil {
		errs = append(errs, l.throttler.UndoInherited())
	}
	if l.memory != nil {
		errs = append(errs, l.memory.UndoInherited(l.state.IsMemoryThrottled))
	}

	if err := errors.Join(errs...); err != nil {
		l.log.Error(err, "restoring limits of the previous agent; retrying")
		l.inheritedUntil = now.Add(inheritedRetry)
		return
	}

	// What remains is in units that this agent has changed.
	l.inheritedCPU = nil
	l.inheritedMemory = nil
	l.state.OwnInherited()
}

// inheritedRetry is the pause after a failure to restore limits of the previous agent.
const inheritedRetry = 10 * time.Second
