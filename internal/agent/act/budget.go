// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
)

const (
	// slotPrefix is the name prefix of the Leases used as slots, slotLabel the label of all of them.
	slotPrefix = "crane-agent-eviction-"
	slotLabel  = "crane.io/eviction-budget"
	// maxWindow is the longest time a Lease counts as held; a longer one would block its slot forever.
	maxWindow = time.Hour
	// maxClockSkew is the largest accepted difference from the API server's clock.
	maxClockSkew = 30 * time.Second
	// maxConflicts is the number of slots that may be lost to other nodes in one attempt.
	maxConflicts = 10
)

// BudgetError reports that all slots are taken.
type BudgetError struct {
	Slots  int
	Window time.Duration
	// FreeIn is the time until the next slot is free.
	FreeIn time.Duration
}

// Error implements error.
func (e *BudgetError) Error() string {
	return fmt.Sprintf("the cluster's budget of %d evictions within %s is used up; the next may go in %s", e.Slots, e.Window, e.FreeIn.Round(time.Second))
}

// Budget bounds the evictions of all nodes together: an eviction needs one of a fixed number of slots, each a Lease, for a window. The API
// server lets only one node take a slot, and a slot expires if its node fails.
type Budget struct {
	cfg BudgetConfig
}

// BudgetConfig configures a Budget.
type BudgetConfig struct {
	// Leases are those in Crane's namespace.
	Leases typedcoordinationv1.LeaseInterface
	// Node is the holder of slots.
	Node string
	// Slots is the number of pods that may be evicted within Window.
	Slots  int
	Window time.Duration
	Clock  clock.PassiveClock
}

// NewBudget returns a budget; nil, for no bound, without slots.
func NewBudget(cfg BudgetConfig) *Budget {
	if cfg.Slots <= 0 {
		return nil
	}

	return &Budget{cfg: cfg}
}

// Slot is a taken slot.
type Slot struct {
	budget *Budget
	lease  *coordinationv1.Lease
}

// Take takes a free slot, searching from a random one. The error is a *BudgetError if none is free.
func (b *Budget) Take(ctx context.Context) (*Slot, error) {
	list, err := b.cfg.Leases.List(ctx, metav1.ListOptions{LabelSelector: slotLabel + "=true"})
	if err != nil {
		return nil, fmt.Errorf("listing leases: %w", err)
	}

	leases := make(map[string]*coordinationv1.Lease, len(list.Items))
	for i := range list.Items {
		leases[list.Items[i].Name] = &list.Items[i]
	}

	now := b.cfg.Clock.Now()
	soonest := b.cfg.Window
	conflicts := 0

	// Nodes that start at different slots rarely compete for one.
	start := rand.IntN(b.cfg.Slots)
	for i := range b.cfg.Slots {
		name := fmt.Sprintf("%s%d", slotPrefix, (start+i)%b.cfg.Slots)
		if remaining := b.remaining(leases[name], now); remaining > 0 {
			soonest = min(soonest, remaining)
			continue
		}

		lease, err := b.write(ctx, name, leases[name], now)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			conflicts++
			if conflicts < maxConflicts {
				continue
			}

			break
		}

		if err != nil {
			return nil, fmt.Errorf("taking lease %s: %w", name, err)
		}

		return b.verifyClock(ctx, lease)
	}

	return nil, &BudgetError{Slots: b.cfg.Slots, Window: b.cfg.Window, FreeIn: soonest}
}

// remaining returns how long a slot is still taken; 0 if it is free.
func (b *Budget) remaining(lease *coordinationv1.Lease, now time.Time) time.Duration {
	if lease == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || lease.Spec.RenewTime == nil {
		return 0
	}

	window := b.cfg.Window
	if s := lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		window = min(time.Duration(*s)*time.Second, maxWindow)
	}

	remaining := lease.Spec.RenewTime.Add(window).Sub(now)
	if remaining > maxWindow+maxClockSkew {
		return 0 // A clock in agreement with the API server's cannot have written this.
	}

	return max(remaining, 0)
}

// write takes a slot; the API server rejects it after a concurrent write.
func (b *Budget) write(ctx context.Context, name string, last *coordinationv1.Lease, now time.Time) (*coordinationv1.Lease, error) {
	at := metav1.NewMicroTime(now)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       &b.cfg.Node,
		LeaseDurationSeconds: new(int32(max(b.cfg.Window.Seconds(), 1))),
		AcquireTime:          &at,
		RenewTime:            &at,
	}

	if last == nil {
		return b.cfg.Leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{slotLabel: "true"}}, Spec: spec,
		}, metav1.CreateOptions{FieldManager: fieldManager})
	}

	next := last.DeepCopy()
	next.Spec = spec
	return b.cfg.Leases.Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
}

// verifyClock releases a slot with wrong times: to a clock that is ahead every slot looks free.
func (b *Budget) verifyClock(ctx context.Context, lease *coordinationv1.Lease) (*Slot, error) {
	slot := &Slot{b, lease}
	for _, m := range lease.ManagedFields {
		if m.Manager != fieldManager || m.Time == nil {
			continue
		}

		if off := b.cfg.Clock.Now().Sub(m.Time.Time); off > maxClockSkew || off < -maxClockSkew {
			err := fmt.Errorf("the node's clock is %s from the API server's", off.Round(time.Second))
			if releaseErr := slot.Release(ctx); releaseErr != nil {
				err = fmt.Errorf("%w; and its slot %s stays taken: %w", err, lease.Name, releaseErr)
			}

			return nil, err
		}
	}

	return slot, nil
}

// Release frees the slot early if no pod was evicted.
func (s *Slot) Release(ctx context.Context) error {
	next := s.lease.DeepCopy()
	next.Spec.HolderIdentity = nil
	if _, err := s.budget.cfg.Leases.Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("releasing lease %s: %w", next.Name, err)
	}

	return nil
}
