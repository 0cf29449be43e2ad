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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/oom"
	"crane.io/crane/pkg/rightsize"
)

// namespaceSnapshot is the state that all autoscalers of a namespace share, read once per reconcile.
type namespaceSnapshot struct {
	now         time.Time
	constraints workload.Constraints
	// usage is the measured usage of the targets; usageErr is the reason why it is missing.
	usage    *profile.Usage
	usageErr error
	// kills are the recorded OOM kills; killsErr is the reason why they are unknown.
	kills    []oom.Kill
	killsErr error
}

// autoscalerState is the state of one autoscaler.
type autoscalerState struct {
	evpa    *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler
	mode    autoscalingv1alpha1.UpdateMode
	modeErr error
	// target is the sized workload; targetProblem is the reason why it cannot be sized.
	target        workload.Workload
	targetProblem *problem
	// applyProblem is the reason why requests are computed and not applied.
	applyProblem *problem
	estimators   estimatorSettings
	estimates    estimateSet
	// recommendation is the Recommendation that the autoscaler controls; nil for none.
	recommendation *analysisv1alpha1.Recommendation
	// ruleRecommendations are those of rules for the requests of the same target, by name.
	ruleRecommendations []analysisv1alpha1.Recommendation
}

// problem is the reason and message of a condition.
type problem struct{ reason, message string }

// observe reads the state of a namespace and of its autoscalers. Its errors are worth a retry.
func (r *Reconciler) observe(
	ctx context.Context, namespace string, evpas []*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler,
) (namespaceSnapshot, []autoscalerState, error) {
	now := r.Clock.Now()
	states, err := r.readAutoscalers(ctx, namespace, evpas, now)
	if err != nil {
		return namespaceSnapshot{}, nil, err
	}

	ns, err := r.readNamespace(ctx, namespace, states, now)
	if err != nil {
		return namespaceSnapshot{}, nil, err
	}

	for i := range states {
		if states[i].targetProblem == nil {
			states[i].estimates = r.collectEstimates(ctx, ns, states[i])
		}
	}

	return ns, states, nil
}

// readAutoscalers reads the targets and Recommendations of the autoscalers, and which of them may be applied: of several autoscalers of a
// target the oldest, unless a VerticalPodAutoscaler has the same target.
func (r *Reconciler) readAutoscalers(
	ctx context.Context, namespace string, evpas []*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler, now time.Time,
) ([]autoscalerState, error) {
	slices.SortFunc(evpas, func(a, b *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})

	vpas, err := r.VPAs.Find(ctx, namespace, now)
	if err != nil {
		return nil, err
	}

	oldest := map[targetindex.Key]string{}
	out := make([]autoscalerState, len(evpas))
	for i, e := range evpas {
		s := autoscalerState{evpa: e, estimators: parseEstimators(e)}
		s.mode, s.modeErr = updateMode(e)
		if s.target, s.targetProblem, err = r.readTarget(ctx, e); err != nil {
			return nil, err
		}

		if s.recommendation, err = r.readRecommendation(ctx, e); err != nil {
			return nil, err
		}

		key := autoscalerTargetKey(e)
		if s.ruleRecommendations, err = r.readRuleRecommendations(ctx, key); err != nil {
			return nil, err
		}

		// The oldest autoscaler of a target is applied; a VerticalPodAutoscaler would undo its changes.
		older := oldest[key]
		vpa := vpas[key]
		switch {
		case older != "":
			s.applyProblem = &problem{reasonOtherEVPA, fmt.Sprintf("EffectiveVerticalPodAutoscaler %s, which is older, has the same target; only that one is applied", older)}
		case vpa != "":
			s.applyProblem = &problem{reasonVPAPresent, fmt.Sprintf("VerticalPodAutoscaler %s sizes the same pods; Crane applies nothing until it is deleted or its update mode is Off", vpa)}
		}

		if older == "" {
			oldest[key] = e.Name
		}
		out[i] = s
	}

	return out, nil
}

// autoscalerTargetKey returns the key of an autoscaler's target.
func autoscalerTargetKey(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) targetindex.Key {
	return targetKey(e.Namespace, e.Spec.TargetRef)
}

func targetKey(namespace string, ref autoscalingv2.CrossVersionObjectReference) targetindex.Key {
	return targetindex.Key{
		Group:     workload.GroupOf(ref.APIVersion, ref.Kind),
		Kind:      ref.Kind,
		Namespace: namespace,
		Name:      ref.Name,
	}
}

// readTarget reads the workload that is sized, or the problem that prevents it. Its error is worth a retry.
func (r *Reconciler) readTarget(ctx context.Context, e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) (workload.Workload, *problem, error) {
	ref := e.Spec.TargetRef
	kind := workload.KindOf(ref.APIVersion, ref.Kind)
	if kind.Version == "" {
		return workload.Workload{}, &problem{reasonTargetUnreadable, fmt.Sprintf("the target needs an apiVersion: %s is not a built-in kind", ref.Kind)}, nil
	}

	key := client.ObjectKey{Namespace: e.Namespace, Name: ref.Name}
	target, err := r.Lister.Get(ctx, kind, key)
	if meta.IsNoMatchError(err) {
		served, mappingErr := r.servedVersion(kind)
		switch {
		case mappingErr != nil && !meta.IsNoMatchError(mappingErr):
			err = mappingErr // Another version may be served.
		case mappingErr == nil && served != kind:
			target, err = r.Lister.Get(ctx, served, key)
		}
	}

	if err != nil && ctx.Err() != nil && !errors.Is(err, workload.ErrNoTemplate) && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return target, nil, err
	}

	return target, checkTarget(ref, target, err), nil
}

// servedVersion returns a kind in the preferred version of those that the API server serves.
func (r *Reconciler) servedVersion(kind schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	meta.MaybeResetRESTMapper(r.Mapper) // The versions may have changed since they were discovered.
	mapping, err := r.Mapper.RESTMapping(kind.GroupKind())
	if err != nil {
		return kind, fmt.Errorf("finding the served version of %s: %w", kind.GroupKind(), err)
	}

	return mapping.GroupVersionKind, nil
}

func checkTarget(ref autoscalingv2.CrossVersionObjectReference, target workload.Workload, err error) *problem {
	switch {
	case errors.Is(err, workload.ErrNoTemplate): // It exists, whatever the error about its scale.
		return &problem{reasonTargetUnreadable, err.Error()}
	case apierrors.IsNotFound(err):
		return &problem{reasonTargetNotFound, fmt.Sprintf("%s %s does not exist", ref.Kind, ref.Name)}
	case meta.IsNoMatchError(err):
		return &problem{reasonTargetUnreadable, fmt.Sprintf("the API server serves no kind %s of %s: correct the apiVersion of the target", ref.Kind, ref.APIVersion)}

	case err != nil:
		return &problem{reasonTargetUnreadable, err.Error()}
	case target.Deleting:
		return &problem{reasonTargetNotFound, fmt.Sprintf("%s %s is being deleted", ref.Kind, ref.Name)}
	case target.Owned:
		return &problem{reasonTargetUnreadable, fmt.Sprintf("%s %s belongs to another object: use that one as the target", ref.Kind, ref.Name)}
	case len(target.Containers) == 0:
		return &problem{reasonTargetUnreadable, fmt.Sprintf("the containers of %s %s are unknown: it has no pod template, and no pod runs", ref.Kind, ref.Name)}
	}

	return nil
}

// readNamespace reads the constraints, the usage of the targets and the OOM kills of a namespace.
func (r *Reconciler) readNamespace(ctx context.Context, namespace string, states []autoscalerState, now time.Time) (namespaceSnapshot, error) {
	out := namespaceSnapshot{now: now}
	var err error
	if out.constraints, err = r.Lister.Constraints(ctx, []string{namespace}); err != nil {
		return out, fmt.Errorf("reading nodes and autoscalers: %w", err)
	}

	var targets []workload.Workload
	window := time.Duration(0)
	for _, s := range states {
		if s.targetProblem == nil && s.estimators.percentile.err == nil {
			targets = append(targets, s.target)
			window = max(window, s.estimators.percentile.settings.Window())
		}
	}

	if len(targets) > 0 {
		out.usage, out.usageErr = r.usageCache.get(ctx, r.History, namespace, targets, usageQuery{
			now:    now,
			window: window,
			maxAge: r.HistoryMaxAge,
			groups: out.constraints.Nodes.Of,
		})
		if out.usageErr == nil {
			out.usage.SetConstraints(out.constraints)
		}
	}

	if r.Kills != nil {
		out.kills, out.killsErr = r.Kills.Kills(ctx)
		// The list belongs to the recorder of OOM kills, so a copy is filtered.
		out.kills = slices.DeleteFunc(slices.Clone(out.kills), func(k oom.Kill) bool { return k.Namespace != namespace })
	}

	return out, nil
}

// containerKills returns the recorded kills of a container of a target.
func (ns namespaceSnapshot) containerKills(target workload.Workload, container string) []rightsize.OOM {
	var out []rightsize.OOM
	for _, k := range ns.kills {
		if k.Container == container && slices.ContainsFunc(k.Owners(), func(o oom.Owner) bool {
			return o.Kind == target.Kind && o.Name == target.Name && workload.GroupOf(o.APIVersion, o.Kind) == workload.GroupOf(target.APIVersion, target.Kind)
		}) {
			out = append(out, rightsize.OOM{
				At:           k.At,
				Memory:       k.Memory,
				NoLimit:      k.NoLimit,
				LimitUnknown: k.Memory <= 0 && !k.NoLimit,
			})
		}
	}

	return out
}

// readRecommendation returns the Recommendation that the autoscaler controls, nil for none.
func (r *Reconciler) readRecommendation(ctx context.Context, e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) (*analysisv1alpha1.Recommendation, error) {
	rec := &analysisv1alpha1.Recommendation{}
	switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: recommendationName(e.Name)}, rec); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the recommendation of the vertical autoscaler %s/%s: %w", e.Namespace, e.Name, err)
	}

	if !metav1.IsControlledBy(rec, e) || rec.DeletionTimestamp != nil {
		return nil, nil
	}

	return rec, nil
}

// readRuleRecommendations returns the Recommendations of rules for the requests of a target, by name.
func (r *Reconciler) readRuleRecommendations(ctx context.Context, target targetindex.Key) ([]analysisv1alpha1.Recommendation, error) {
	all, err := targetindex.ListRecommendations(ctx, r.Client, target)
	if err != nil {
		return nil, fmt.Errorf("reading what rules recommend: %w", err)
	}

	all = slices.DeleteFunc(all, func(rec analysisv1alpha1.Recommendation) bool {
		return rec.Namespace != target.Namespace || rec.Spec.Type != analysisv1alpha1.AnalysisTypeResource || rec.Labels[analysisv1alpha1.LabelRuleName] == ""
	})
	slices.SortFunc(all, func(a, b analysisv1alpha1.Recommendation) int { return cmp.Compare(a.Name, b.Name) })

	return all, nil
}
