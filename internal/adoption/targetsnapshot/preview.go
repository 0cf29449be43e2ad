// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/oom"
)

// Preview is the next decision about one Recommendation as if its adoptionType were Auto.
type Preview struct {
	Recommendation *analysisv1alpha1.Recommendation
	// Phase is the present phase of adoption.
	Phase adoption.Phase
	// Refused is the reason why nothing is adopted; empty if something is.
	Refused string
	// Plan is the decision; its summary and remarks explain it.
	Plan     adoption.Plan
	Requests []Request
}

// Previewer previews Recommendations one after the other; each counts against the budgets of the next.
type Previewer struct {
	SnapshotReader
	Settings Settings
	Budgets  *adoption.BudgetTracker
	// SystemNamespace is Crane's own namespace.
	SystemNamespace string
}

// Preview decides as craned does, and sends nothing. all holds the Recommendations that may select the same target.
func (p Previewer) Preview(
	ctx context.Context, rec *analysisv1alpha1.Recommendation, all []analysisv1alpha1.Recommendation, now time.Time,
) (Preview, error) {
	rec = rec.DeepCopy()
	rec.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeAuto

	out := Preview{Recommendation: rec}
	var err error
	if out.Refused, err = p.refusalReason(ctx, rec, all); err != nil || out.Refused != "" {
		return out, err
	}

	ref := rec.Spec.TargetRef
	kind, ok := AdoptableKind(workload.KindOf(ref.APIVersion, ref.Kind))
	if _, watched := SupportedKind(kind.GVK.Group, kind.GVK.Kind); !ok || !watched && rec.Spec.Type != analysisv1alpha1.AnalysisTypeResource {
		out.Refused = fmt.Sprintf("pods of a %s are not adopted", ref.Kind)
		return out, nil
	}

	target, err := p.Read(ctx, kind, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
	if apierrors.IsNotFound(err) {
		out.Refused = "the target does not exist"
		return out, nil
	}
	if err != nil {
		return out, err
	}

	analysisType := rec.Spec.Type
	state, err := ReadState(target.Object, analysisType)
	if err != nil {
		out.Refused = fmt.Sprintf("annotation %s of the target: %v", StateAnnotations()[analysisType], err)
		return out, nil
	}

	in, block, err := p.DecisionInput(ctx, target, DecisionRequest{
		Type:           analysisType,
		Recommendation: rec,
		State:          state,
		Policy:         p.Settings.Policy,
		Now:            now,
	})
	if err != nil {
		return out, err
	}

	// The budget is used up as the controller would, so that previews of several workloads add up.
	entry := target.BudgetKey(analysisType)
	in.Allowance = p.Budgets.AllowanceFor(entry, in.Policy, now)
	in.Allowance.WindowClosed = p.Settings.WindowClosed(now)
	out.Phase = state.Phase
	out.Refused = block.Message
	out.Plan = p.Decide(ctx, target, in, adoption.Decide)
	p.Budgets.Set(entry, out.Plan.State)
	out.Requests, err = target.Requests(analysisType, state, out.Plan)

	return out, err
}

// refusalReason returns why a Recommendation is not applied, whatever the state of its target, or "".
func (p Previewer) refusalReason(
	ctx context.Context, rec *analysisv1alpha1.Recommendation, all []analysisv1alpha1.Recommendation,
) (string, error) {
	if err := targetindex.CheckNamespace(rec, p.SystemNamespace); err != nil {
		return err.Error(), nil
	}

	switch {
	case StateAnnotations()[rec.Spec.Type] == "":
		return fmt.Sprintf("recommendations of type %s are not adopted", rec.Spec.Type), nil
	case rec.Status.RecommendedValue == "":
		return "nothing is recommended yet", nil
	}

	// Another Recommendation of the same target may have precedence.
	same := []analysisv1alpha1.Recommendation{*rec}
	for i := range all {
		o := &all[i]
		if o.UID != rec.UID && isSameObject(o.Spec.TargetRef, rec.Spec.TargetRef) && targetindex.CheckNamespace(o, p.SystemNamespace) == nil {
			same = append(same, *o)
		}
	}

	owned, err := AutoscalerOwned(ctx, p.Live, same)
	if err != nil {
		return "", err
	}

	if first := ActiveRecommendation(same, rec.Spec.Type, owned); first != nil && first.UID != rec.UID {
		return fmt.Sprintf("recommendation %s has precedence for the same target", first.Name), nil
	}

	return "", nil
}

func isSameObject(a, b corev1.ObjectReference) bool {
	kind := func(r corev1.ObjectReference) schema.GroupKind {
		return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).GroupKind()
	}

	return kind(a) == kind(b) && a.Namespace == b.Namespace && a.Name == b.Name
}

// ConfigMapKillReader reads the OOM kills from the ConfigMap in which craned records them.
type ConfigMapKillReader struct {
	Reader    client.Reader
	Namespace string
}

// Kills implements KillReader. It skips entries that cannot be parsed.
func (k ConfigMapKillReader) Kills(ctx context.Context) ([]oom.Kill, error) {
	var cm corev1.ConfigMap
	err := k.Reader.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: oom.ConfigMapName}, &cm)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", k.Namespace, oom.ConfigMapName, err)
	}

	ledger, _, err := oom.Parse(cm.Data[oom.ConfigMapKey])
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", k.Namespace, oom.ConfigMapName, err)
	}

	return ledger.Kills(), nil
}
