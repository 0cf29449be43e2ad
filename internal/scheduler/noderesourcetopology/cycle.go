// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"fmt"
	"sync"
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"
)

const stateKey fwk.StateKey = Name

// cycle is what the plugin keeps for one pod's scheduling cycle. Filter reads it on many nodes at once.
type cycle struct {
	request  *request
	rejected *atomic.Bool // whether a node was refused already
	reasons  func() map[verdict]string
}

func newCycle(r *request) *cycle {
	return &cycle{request: r, rejected: &atomic.Bool{}, reasons: sync.OnceValue(func() map[verdict]string {
		asked := r.resources.String()
		return map[verdict]string{
			unknown:       reasonUnknown,
			zoneless:      reasonUnknown,
			noZone:        fmt.Sprintf(reasonNoZone, asked),
			noZoneEver:    fmt.Sprintf(reasonNoZoneEver, asked),
			tooLittle:     fmt.Sprintf(reasonTooLittle, asked),
			tooLittleEver: fmt.Sprintf(reasonTooLittleEver, asked),
		}
	})}
}

// readCycle returns nil for pods that ask nothing of zones.
func readCycle(state fwk.CycleState) *cycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	c, _ := data.(*cycle)
	return c
}

// Clone implements fwk.StateData. Trials change the node that Filter is given and nothing here.
func (c *cycle) Clone() fwk.StateData { return c }

// reject reports whether this is the first node that is refused.
func (c *cycle) reject() bool { return c.rejected.CompareAndSwap(false, true) }

// status is the answer of Filter for a node where the pod may not go. Where the zones are too small even when empty,
// preemption would not help.
func (c *cycle) status(v verdict) *fwk.Status {
	switch v {
	case noZone, tooLittle:
		return fwk.NewStatus(fwk.Unschedulable, c.reasons()[v])
	default:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, c.reasons()[v])
	}
}
