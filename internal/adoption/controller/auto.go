// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	shared "crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/pkg/adoption"
)

// auto goes on with what Auto asks for of one target and type; rec is nil where nothing asks for it any more.
func (r *Reconciler) auto(
	ctx context.Context, key targetindex.Key, kind analysisv1alpha1.AnalysisType, rec *analysisv1alpha1.Recommendation,
) (verdict, error) {
	watched, ok := shared.KindOf(key.Group, key.Kind)
	if !ok {
		return verdict{reason: reasonNotSupported, message: fmt.Sprintf("Pods of a %s are not adopted; the value is in the annotation.", key.Kind)}, nil
	}
	look := shared.Looker{Live: r.Live, Kills: r.Kills, Throttling: r.Throttling}
	scene, err := look.Look(ctx, watched, client.ObjectKey{Namespace: key.Namespace, Name: key.Name})
	switch {
	case apierrors.IsNotFound(err) || err != nil && meta.IsNoMatchError(err):
		r.forget(key, kind)
		return verdict{}, nil // annotate has said so.
	case err != nil:
		return verdict{}, err
	}
	state, err := shared.StateOf(scene.Object, kind)
	if err != nil {
		return verdict{reason: reasonUnreadableState, message: fmt.Sprintf("annotation %s of the target: %v; nothing is done until it is deleted or mended", shared.StateKeys()[kind], err)}, nil
	}
	if rec == nil && state.Phase == adoption.Untouched {
		r.forget(key, kind)
		return verdict{}, nil
	}
	in, bar, err := look.Input(ctx, scene, shared.Question{
		Type: kind, Recommendation: rec, State: state, Policy: r.Settings.Policy, Now: r.Clock.Now(),
	})
	if err != nil {
		return verdict{}, err
	}
	if err := r.load(ctx); err != nil {
		return verdict{}, err
	}
	r.refusals.tell(in.Pods, in.Now)
	plan := r.decide(scene.BookKey(kind), in)
	var v verdict
	if r.Settings.DryRun {
		v, err = r.preview(ctx, scene, kind, rec, state, plan)
	} else {
		v, err = r.act(ctx, scene, kind, rec, state, plan)
	}
	if v.reason == "" {
		v.reason, v.message = bar.Reason, bar.Message
	}
	return v, err
}

// decide asks what to do, with the book of the cluster in hand, and enters the answer.
func (r *Reconciler) decide(entry adoption.Key, in adoption.Input) adoption.Plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	in.Room = r.book.Room(entry, in.Policy, in.Now)
	in.Room.Closed = r.Settings.Closed(in.Now)
	plan := adoption.Decide(in)
	if !r.Settings.DryRun {
		r.book.Set(entry, plan.State)
	}
	return plan
}

// forget drops a target that is gone, or of which nothing is adopted, from the book.
func (r *Reconciler) forget(key targetindex.Key, kind analysisv1alpha1.AnalysisType) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book.Remove(adoption.Key{Namespace: key.Namespace, Kind: key.Kind, Name: key.Name, What: string(kind)})
}
