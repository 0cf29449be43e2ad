// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/elasticrequest"
)

const (
	// predecessorInterval is the interval of checks until the Node and its pods are known, predecessorTimeout bounds the requests.
	predecessorInterval = time.Second
	predecessorTimeout  = 10 * time.Second
)

// predecessorManager removes once what gocrane's agent left on the Node. A dry run warns.
type predecessorManager struct {
	environment

	access clusterAccess
}

// newPredecessorManager returns the manager; none without an API server.
func (e environment) newPredecessorManager(access clusterAccess) []Manager {
	if access.api == nil {
		return nil
	}
	return []Manager{predecessorManager{e, access}}
}

// Name implements Manager.
func (predecessorManager) Name() string { return "predecessor" }

// Run implements Manager. It ends when nothing is left to remove; after an error it is called again.
func (m predecessorManager) Run(ctx context.Context) error {
	state := m.access.view.State()
	for state.Node == nil || !state.KnowsPods {
		select {
		case <-ctx.Done():
			return nil
		case <-m.clock.After(predecessorInterval):
		}
		state = m.access.view.State()
	}
	note := m.predecessorNote(state)
	switch {
	case note == "":
		return nil
	case m.DryRun:
		m.log.Info(note)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, predecessorTimeout)
	defer cancel()
	held := elasticrequest.SumAllocated(state.Pods)
	cores := (held.CPU + 999) / 1000
	removed, err := act.RemovePredecessor(ctx, m.access.api.CoreV1().Nodes(), state.Node.Name, !m.enforces(enforceNodeResource), corev1.ResourceList{
		ensurancev1alpha1.ResourceReclaimedCPU:    *resource.NewQuantity(int64(cores), resource.DecimalSI),
		ensurancev1alpha1.ResourceReclaimedMemory: *resource.NewQuantity(int64(held.Memory), resource.DecimalSI),
	})
	if err != nil {
		return err
	}
	m.log.Info("removed what gocrane's agent left on the node", "removed", removed.String())
	return nil
}

// predecessorNote describes what gocrane's agent left on the Node; empty if nothing.
func (o *Options) predecessorNote(state *cluster.State) string {
	if state.Node == nil {
		return ""
	}
	left := act.FindPredecessor(state.Node)
	if o.enforces(enforceNodeResource) {
		left.Resources = nil // They are maintained.
	}
	if left.IsEmpty() {
		return ""
	}
	return fmt.Sprintf("gocrane's agent left %s on the node; an agent that does not run dry removes it", left)
}
