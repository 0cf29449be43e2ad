// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/oom"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/vertical"
)

// namespaceSnapshot is a namespace in one look.
type namespaceSnapshot struct {
	now         time.Time
	autoscalers []*autoscalerState
	constraints workload.Constraints
	// usage is nil where it could not be read; usageErr says why.
	usage    *profile.Usage
	usageErr error
	// kills are the recorded ones of the namespace; killsErr says why they are not known.
	kills    []oom.Kill
	killsErr error
}

// autoscalerState is one autoscaler in one look.
type autoscalerState struct {
	evpa    *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler
	mode    autoscalingv1alpha1.UpdateMode
	modeErr error
	// target is what is sized; refused says why it is not.
	target        workload.Workload
	targetProblem *problem
	// applyProblem says why nothing may be applied, although it can be computed.
	applyProblem *problem
	estimators   estimatorSettings
	// estimates are the answers of the estimators that are asked over the network, by container and resource.
	estimates estimateSet
	// recommendation is the autoscaler's Recommendation; nil where there is none.
	recommendation *analysisv1alpha1.Recommendation
}

// problem is a reason with its sentence.
type problem struct{ reason, message string }

// estimateSet are estimates by container and resource.
type estimateSet map[string]map[vertical.Resource][]vertical.Estimate

func (a estimateSet) add(container string, r vertical.Resource, e vertical.Estimate) {
	if a[container] == nil {
		a[container] = map[vertical.Resource][]vertical.Estimate{}
	}
	a[container][r] = append(a[container][r], e.Validated(r))
}

// observe reads all that decisions about a namespace need. An error is one that another try may mend.
func (r *Reconciler) observe(ctx context.Context, namespace string, all []*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) (*namespaceSnapshot, error) {
	// The oldest of a target comes first: it is the one that counts.
	slices.SortFunc(all, func(a, b *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	s := &namespaceSnapshot{now: r.Clock.Now()}
	others, err := r.VPAs.Find(ctx, namespace, s.now)
	if err != nil {
		return nil, err
	}
	taken := map[targetindex.Key]string{}
	for _, e := range all {
		one := &autoscalerState{evpa: e, estimators: parseEstimators(e), estimates: estimateSet{}}
		one.mode, one.modeErr = updateMode(e)
		if err := r.readTarget(ctx, one); err != nil {
			return nil, err
		}
		key := autoscalerTargetKey(e)
		switch elder, other := taken[key], others[key]; {
		case elder != "":
			one.applyProblem = &problem{reasonOtherEVPA, fmt.Sprintf("EffectiveVerticalPodAutoscaler %s, which is older, has the same target; only that one is applied", elder)}
		case other != "":
			one.applyProblem = &problem{reasonVPAPresent, fmt.Sprintf("VerticalPodAutoscaler %s sizes the same pods; Crane leaves them to it until it is gone or its update mode is Off", other)}
		}
		if taken[key] == "" {
			taken[key] = e.Name
		}
		if one.recommendation, err = r.readRecommendation(ctx, e); err != nil {
			return nil, err
		}
		s.autoscalers = append(s.autoscalers, one)
	}
	if err := r.readNamespace(ctx, namespace, s); err != nil {
		return nil, err
	}
	for _, one := range s.autoscalers {
		if one.targetProblem == nil {
			r.collectEstimates(ctx, s, one)
		}
	}
	return s, nil
}

// autoscalerTargetKey names the target of an autoscaler.
func autoscalerTargetKey(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) targetindex.Key {
	return targetKey(e.Namespace, e.Spec.TargetRef)
}

func targetKey(namespace string, ref autoscalingv2.CrossVersionObjectReference) targetindex.Key {
	return targetindex.Key{Group: targetKind(ref).Group, Kind: ref.Kind, Namespace: namespace, Name: ref.Name}
}

// targetKind completes the kind of a target: everybody means the built-in one where no version is given.
func targetKind(ref autoscalingv2.CrossVersionObjectReference) schema.GroupVersionKind {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err == nil && ref.APIVersion != "" {
		return gv.WithKind(ref.Kind)
	}
	for _, k := range workload.WatchedKinds() {
		if k.GVK.Kind == ref.Kind {
			return k.GVK
		}
	}
	return schema.GroupVersionKind{Kind: ref.Kind}
}

// readTarget reads what is sized.
func (r *Reconciler) readTarget(ctx context.Context, s *autoscalerState) error {
	ref := s.evpa.Spec.TargetRef
	kind := targetKind(ref)
	if kind.Version == "" {
		s.targetProblem = &problem{reasonTargetUnreadable, fmt.Sprintf("the target needs an apiVersion: kind %s alone says nothing", ref.Kind)}
		return nil
	}
	var err error
	s.target, err = r.Lister.Get(ctx, kind, client.ObjectKey{Namespace: s.evpa.Namespace, Name: ref.Name})
	switch {
	case errors.Is(err, workload.ErrNoTemplate): // It is there, whatever is said of its scale.
		s.targetProblem = &problem{reasonTargetUnreadable, err.Error()}
	case apierrors.IsNotFound(err):
		s.targetProblem = &problem{reasonTargetNotFound, fmt.Sprintf("%s %s does not exist", ref.Kind, ref.Name)}
	case meta.IsNoMatchError(err):
		s.targetProblem = &problem{reasonTargetNotFound, fmt.Sprintf("the API server has no kind %s of %s", ref.Kind, ref.APIVersion)}
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		s.targetProblem = &problem{reasonTargetUnreadable, err.Error()}
	case s.target.Deleting:
		s.targetProblem = &problem{reasonTargetNotFound, fmt.Sprintf("%s %s is being deleted", ref.Kind, ref.Name)}
	case s.target.Owned:
		s.targetProblem = &problem{reasonTargetUnreadable, fmt.Sprintf("%s %s belongs to another object: name that one as the target", ref.Kind, ref.Name)}
	case len(s.target.Containers) == 0:
		s.targetProblem = &problem{reasonTargetUnreadable, fmt.Sprintf("nothing is known of the containers of %s %s: it has no pod template, and no pod runs", ref.Kind, ref.Name)}
	}
	return nil
}

// readNamespace reads what is read once for the namespace: nodes and autoscalers, use, and kills.
func (r *Reconciler) readNamespace(ctx context.Context, namespace string, s *namespaceSnapshot) error {
	var sized []workload.Workload
	window := time.Duration(0)
	for _, one := range s.autoscalers {
		if one.targetProblem == nil && one.estimators.percentileErr == nil {
			sized = append(sized, one.target)
			window = max(window, one.estimators.percentile.Window())
		}
	}
	var err error
	if s.constraints, err = r.Lister.Constraints(ctx, []string{namespace}); err != nil {
		return fmt.Errorf("reading nodes and autoscalers: %w", err)
	}
	if len(sized) > 0 {
		s.usage, s.usageErr = r.usageCache.get(ctx, r.History, namespace, sized, usageQuery{
			now: s.now, window: window, maxAge: r.HistoryMaxAge, groups: s.constraints.Nodes.Of,
		})
		if s.usageErr == nil {
			s.usage.SetConstraints(s.constraints)
		}
	}
	if r.Kills == nil {
		return nil
	}
	kills, err := r.Kills.Kills(ctx)
	s.killsErr = err
	for _, k := range kills {
		if k.Namespace == namespace {
			s.kills = append(s.kills, k)
		}
	}
	return nil
}

// containerKills are the kills of a container of a target: those recorded, and those that the source of history saw.
func (s *namespaceSnapshot) containerKills(one *autoscalerState, container string, seen []rightsize.OOM) []rightsize.OOM {
	out := slices.Clone(seen)
	for _, k := range s.kills {
		if k.Container != container {
			continue
		}
		for _, o := range k.Owners() {
			if o.Kind == one.target.Kind && o.Name == one.target.Name && targetindex.GroupOf(o.APIVersion) == targetindex.GroupOf(one.target.APIVersion) {
				out = append(out, rightsize.OOM{At: k.At, Memory: k.Memory})
				break
			}
		}
	}
	return out
}

// readRecommendation reads the Recommendation of an autoscaler; one of somebody else under the name is as none.
func (r *Reconciler) readRecommendation(ctx context.Context, e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) (*analysisv1alpha1.Recommendation, error) {
	rec := &analysisv1alpha1.Recommendation{}
	switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: recommendationName(e.Name)}, rec); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the recommendation of the vertical autoscaler %s/%s: %w", e.Namespace, e.Name, err)
	}
	if !isOwned(rec, e) || rec.DeletionTimestamp != nil {
		return nil, nil
	}
	return rec, nil
}

// targetReference is the target as a Recommendation names it.
func (s *autoscalerState) targetReference() corev1.ObjectReference {
	w := s.target
	return corev1.ObjectReference{APIVersion: w.APIVersion, Kind: w.Kind, Namespace: w.Namespace, Name: w.Name, UID: w.UID}
}
