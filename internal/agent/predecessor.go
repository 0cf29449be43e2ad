// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/pkg/qos"
)

const (
	// predecessorInterval is the interval of checks until the Node, its pods and their cgroups are known, predecessorTimeout bounds the
	// requests.
	predecessorInterval = time.Second
	predecessorTimeout  = 10 * time.Second
	// maxNamedQuotas bounds the containers that a note names.
	maxNamedQuotas = 5
)

// predecessorManager removes once what gocrane's agent left on the Node. If the agent enforces CPU limits it also restores the quotas that
// were left on the host. A dry run only logs both.
type predecessorManager struct {
	environment

	access   clusterAccess
	changes  *act.Journal // nil if this agent changes no cgroups
	reporter *report.Reporter
}

// newPredecessorManager returns the manager; none without an API server.
func (e environment) newPredecessorManager(access clusterAccess, changes *act.Journal, reporter *report.Reporter) []Manager {
	if access.api == nil {
		return nil
	}

	return []Manager{predecessorManager{e, access, changes, reporter}}
}

// Name implements Manager.
func (predecessorManager) Name() string { return "predecessor" }

// Run implements Manager. It ends when nothing is left that this agent may remove; after an error it is called again. Quotas that could not
// be restored do not delay the rest: the Node's annotation keeps the record of them.
func (m predecessorManager) Run(ctx context.Context) error {
	state := m.access.view.State()
	for state.Node == nil || !state.KnowsPods || m.latest.Load() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-m.clock.After(predecessorInterval):
		}

		state = m.access.view.State()
	}

	snapshot := m.latest.Load()
	note := m.predecessorNote(state, snapshot)
	switch {
	case note == "":
		return nil
	case m.DryRun:
		m.log.Info(note)
		return nil
	}

	// The annotation stays on the Node as the record of quotas that could not be restored.
	quotas := findLeftQuotas(state, snapshot)

	quotasLeft := len(quotas) > 0
	restoreErr := error(nil)
	if m.enforces(enforceThrottle) && m.changes != nil {
		restoreErr = m.restoreQuotas(quotas)
		quotasLeft = restoreErr != nil
	}

	ctx, cancel := context.WithTimeout(ctx, predecessorTimeout)
	defer cancel()

	allocated := elasticrequest.SumAllocated(state.Pods)
	cores := (allocated.CPU + 999) / 1000

	removed, err := act.RemovePredecessor(ctx, m.access.api.CoreV1().Nodes(), state.Node.Name, !m.enforces(enforceNodeResource), quotasLeft, corev1.ResourceList{
		ensurancev1alpha1.ResourceReclaimedCPU:    *resource.NewQuantity(int64(cores), resource.DecimalSI),
		ensurancev1alpha1.ResourceReclaimedMemory: *resource.NewQuantity(int64(allocated.Memory), resource.DecimalSI),
	})
	if err == nil && !removed.IsEmpty() {
		m.log.Info("removed what gocrane's agent left on the node", "removed", removed.String())
	}
	if err == nil && quotasLeft && restoreErr == nil {
		m.log.Info("CPU quotas that gocrane's agent left stay, because --enforce lacks an action", "action", enforceThrottle, "containers", len(quotas))
	}

	return errors.Join(restoreErr, err)
}

// restoreQuotas raises quotas to the limits of the pods. Those that this agent has changed meanwhile are left to the next call, because
// undoing its change would bring the old quota back. The journal rolls back a rejected write and refuses all while Crane is paused; its
// entries are forgotten, because the quotas are not lowered again when the agent ends.
func (m predecessorManager) restoreQuotas(quotas []leftQuota) error {
	changedGroups := map[string]bool{}
	for _, entry := range m.changes.Entries() {
		for _, file := range entry.Files {
			changedGroups[file.Group] = true
		}
	}

	var errs []error
	for _, q := range quotas {
		if changedGroups[q.group] {
			errs = append(errs, fmt.Errorf("%s: its quota was left by gocrane's agent and is changed by this one; it is restored later", q.name()))
			continue
		}

		// Forgotten after the write, because the quota is not lowered again when the agent ends.
		key := "predecessor/" + q.containerID
		err := m.changes.Change(act.Unit{Key: key, Subject: q.name(), Changes: act.QuotaChanges(m.layout.Version, q.group, q.limit)})

		done := report.Action{
			Kind:      report.CPURestore,
			Outcome:   report.Done,
			Pod:       q.pod,
			Container: q.container,
			From:      coresOf(q.now),
			To:        coresOf(q.limit),
			Reason:    "gocrane's agent left a CPU quota below the limit in the pod's spec",
		}

		if err == nil {
			err = m.changes.Forget(key)
		}

		if err != nil {
			done.Outcome = report.Failed
			done.Error = err.Error()
			errs = append(errs, err)
		}

		m.reporter.ReportAction(done)
	}

	return errors.Join(errs...)
}

// predecessorNote describes what gocrane's agent left on the Node, and the quotas that it may have left on the host; empty if nothing is
// left on the Node. The snapshot may be nil.
func (o *Options) predecessorNote(state *cluster.State, snapshot *observe.Snapshot) string {
	if state.Node == nil {
		return ""
	}

	predecessor := act.FindPredecessor(state.Node)
	if o.enforces(enforceNodeResource) {
		predecessor.Resources = nil // They are maintained.
	}

	if predecessor.IsEmpty() {
		return ""
	}

	note := fmt.Sprintf("gocrane's agent left %s on the node", predecessor)
	if quotas := findLeftQuotas(state, snapshot); len(quotas) > 0 {
		var named []string
		for _, q := range quotas[:min(len(quotas), maxNamedQuotas)] {
			named = append(named, fmt.Sprintf("%s %s instead of %s", q.name(), coresOf(q.now), coresOf(q.limit)))
		}
		note += fmt.Sprintf(", and %d containers with a lower CPU quota than their limit: %s", len(quotas), strings.Join(named, ", "))
	}

	return note + "; an agent that does not run dry removes it"
}

// leftQuota is a CPU quota of a container that is lower than its pod's spec asks for.
type leftQuota struct {
	pod                           qos.PodRef
	container, containerID, group string
	now, limit                    cgroup.Bandwidth
}

func (q leftQuota) name() string { return q.pod.Namespace + "/" + q.pod.Name + "/" + q.container }

func coresOf(b cgroup.Bandwidth) string {
	if b.Unlimited() {
		return "no limit"
	}

	return fmt.Sprintf("%.3g cores", b.Cores())
}

// findLeftQuotas returns the containers whose CPU quota is lower than a kubelet or gocrane's agent sets for their spec. A kubelet writes
// quotas when a container starts and when it is resized, so it does not correct them. Left out are pods that are being resized, that have
// resources of the pod as a whole, that have opted out, and static pods, which gocrane's agent did not change.
func findLeftQuotas(state *cluster.State, snapshot *observe.Snapshot) []leftQuota {
	if snapshot == nil {
		return nil
	}

	corrected := slices.DeleteFunc(slices.Clone(state.Pods), func(pod *corev1.Pod) bool {
		_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		return mirror || pod.Spec.Resources != nil || optout.Labeled(pod.Labels) || isResizing(pod)
	})

	pods := inventory.New(corrected, func(*corev1.Pod) []string { return nil }, func(*corev1.Pod) string { return "" })
	var out []leftQuota
	for i := range snapshot.Pods {
		pod, _ := pods.Find(snapshot.Pods[i].UID)
		for _, c := range snapshot.Pods[i].Containers {
			spec, ok := pods.Container(pod.UID, c.ID)
			if !ok || !c.Limit.OK || c.Limit.Value.Unlimited() {
				continue
			}

			now := c.Limit.Value
			limit := specLimit(spec, now.Period)
			// A kubelet rounds down.
			if limit.Unlimited() || now.Quota < limit.Quota-limit.Quota/100 {
				out = append(out, leftQuota{
					pod:         qos.PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name},
					container:   spec.Name,
					containerID: c.ID,
					group:       c.Path,
					now:         now,
					limit:       limit,
				})
			}
		}
	}

	return out
}

// isResizing reports whether a pod's containers may have other limits than its spec.
func isResizing(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return (c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress) && c.Status == corev1.ConditionTrue
	})
}

// specLimit returns the quota of a container by its spec: its CPU limit, else its reclaimed CPU, which gocrane's agent limited.
func specLimit(c qos.Container, period time.Duration) cgroup.Bandwidth {
	if c.Limit <= 0 {
		return cgroup.Bandwidth{Quota: -1, Period: period}
	}

	return cgroup.NewBandwidth(c.Limit, period)
}
