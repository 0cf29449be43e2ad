// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/scaling"
)

// Settings of the adoption type Auto.
type Settings struct {
	// DryRun writes the requests into the status instead of sending them.
	DryRun bool
	Policy adoption.Policy
	// Windows are the maintenance windows in which requests may be lowered; none means always.
	Windows []scaling.CronWindow
}

// WindowClosed returns the reason while no maintenance window is open, and "" if one is, or none is configured.
func (s Settings) WindowClosed(now time.Time) string {
	if len(s.Windows) == 0 {
		return ""
	}

	var next time.Time
	for _, w := range s.Windows {
		if w.IsOpen(now) {
			return ""
		}

		if opens, _ := w.Next(now); !opens.IsZero() && (next.IsZero() || opens.Before(next)) {
			next = opens
		}
	}

	return "no maintenance window is open; the next opens at " + next.UTC().Format(time.RFC3339)
}

// LoadBudgets records the states that are stored on all workloads. newList returns an empty list of a kind.
func LoadBudgets(ctx context.Context, book *adoption.BudgetTracker, reader client.Reader, newList func(schema.GroupVersionKind) (client.ObjectList, error)) error {
	for _, kind := range workload.WatchedKinds() {
		list, err := newList(kind.GVK)
		if err != nil {
			return err
		}

		if err := reader.List(ctx, list); err != nil {
			return fmt.Errorf("listing %s: %w", kind.GVK.Kind, err)
		}

		err = meta.EachListItem(list, func(o runtime.Object) error {
			if object, ok := o.(client.Object); ok {
				recordState(book, kind, object)
			}

			return nil
		})
		if err != nil {
			return fmt.Errorf("listing %s: %w", kind.GVK.Kind, err)
		}
	}

	return nil
}

// recordState adds the states of an object to the budgets. A state that cannot be parsed uses none: its target is not changed, and a condition
// reports it.
func recordState(book *adoption.BudgetTracker, kind workload.WatchedKind, o client.Object) {
	s := &TargetSnapshot{Kind: kind, Object: o}
	for analysisType := range StateAnnotations() {
		if state, err := ReadState(o, analysisType); err == nil {
			book.Set(s.BudgetKey(analysisType), state)
		}
	}
}
