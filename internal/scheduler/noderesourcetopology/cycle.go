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

// cycle is the state of one pod's scheduling cycle. Filter reads it concurrently.
type cycle struct {
	request  *request
	rejected *atomic.Bool // whether a node was refused already
	bound    *atomic.Bool // whether Bind wrote the annotation
	reasons  func() map[verdict]string
}

func newCycle(r *request) *cycle {
	return &cycle{
		request:  r,
		rejected: &atomic.Bool{},
		bound:    &atomic.Bool{},
		reasons: sync.OnceValue(func() map[verdict]string {
			requested := r.resources.String()
			return map[verdict]string{
				unknown:       reasonUnknown,
				zoneless:      reasonUnknown,
				noZone:        fmt.Sprintf(reasonNoZone, requested),
				noZoneEver:    fmt.Sprintf(reasonNoZoneEver, requested),
				tooLittle:     fmt.Sprintf(reasonTooLittle, requested),
				tooLittleEver: fmt.Sprintf(reasonTooLittleEver, requested),
			}
		}),
	}
}

// readCycle returns nil for pods without a zone request.
func readCycle(state fwk.CycleState) *cycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}

	c, _ := data.(*cycle)
	return c
}

// Clone implements fwk.StateData. Trials change the node that Filter gets, not the cycle.
func (c *cycle) Clone() fwk.StateData { return c }

// reject reports whether this is the first rejected node.
func (c *cycle) reject() bool { return c.rejected.CompareAndSwap(false, true) }

// status returns Filter's status for a rejected node. If the zones are too small even when empty, preemption would
// not help.
func (c *cycle) status(v verdict) *fwk.Status {
	switch v {
	case noZone, tooLittle:
		return fwk.NewStatus(fwk.Unschedulable, c.reasons()[v])
	default:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, c.reasons()[v])
	}
}
