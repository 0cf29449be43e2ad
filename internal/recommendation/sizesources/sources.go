// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sizesources lists everything that decides the size of a workload, which of it acts, and why the rest does not.
package sizesources

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/foreignvpa"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/component/shellquote"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/units"
)

const (
	effectiveHPAKind = "EffectiveHorizontalPodAutoscaler"
	notEvaluatedYet  = "craned has not evaluated it yet; repeat the command in some seconds"
)

// Source is one origin of the size of a workload.
type Source struct {
	Source   string `json:"source"`
	CPU      string `json:"cpu,omitempty"`
	Memory   string `json:"memory,omitempty"`
	Replicas string `json:"replicas,omitempty"`
	Acts     bool   `json:"acts"`
	Why      string `json:"why"`
}

// Sources are all origins of the size of a workload; the first is its pod template.
type Sources struct {
	Workload string   `json:"workload"`
	Sources  []Source `json:"sources"`
}

// Read reads the origins of the size of a workload. Kinds that are not installed have none.
func Read(ctx context.Context, c client.Reader, target workload.Workload) (Sources, error) {
	out := Sources{Workload: target.String(), Sources: []Source{templateSource(target)}}
	for _, read := range []func(context.Context, client.Reader, workload.Workload) ([]Source, error){
		recommendationSources, verticalSources, foreignVerticalSources, aheadSources, horizontalSources,
	} {
		found, err := read(ctx, c, target)
		if err != nil && !meta.IsNoMatchError(err) {
			return out, err
		}

		out.Sources = append(out.Sources, found...)
	}

	for i := range out.Sources[1:] {
		source := &out.Sources[1+i]
		switch {
		case source.Acts && (source.CPU != "" || source.Memory != ""):
			out.Sources[0].Acts = false
			out.Sources[0].Why = "running pods and new pods get the requests of " + source.Source
		case source.Source == foreignVPAs: // Those that cannot be read may act.
			out.Sources[0].Why = "nothing else that can be read sets requests"
		case source.Acts && strings.HasPrefix(source.Source, foreignVPAs+" "):
			out.Sources[0].Acts = false
			out.Sources[0].Why = source.Source + " sets requests"
		}
	}

	return out, nil
}

func templateSource(w workload.Workload) Source {
	out := Source{
		Source:   "pod template",
		Replicas: fmt.Sprint(w.Replicas),
		Acts:     true,
		Why:      "nothing else sets requests",
	}

	sum, _ := w.PodRequests()
	out.setRequests(sum)
	return out
}

// recommendationSources returns the Recommendations of a workload.
func recommendationSources(ctx context.Context, c client.Reader, target workload.Workload) ([]Source, error) {
	var list analysisv1alpha1.RecommendationList
	if err := c.List(ctx, &list, client.InNamespace(target.Namespace)); err != nil {
		return nil, fmt.Errorf("listing recommendations: %w", err)
	}

	list.Items = slices.DeleteFunc(list.Items, func(r analysisv1alpha1.Recommendation) bool {
		return r.Spec.TargetRef.Kind != target.Kind || r.Spec.TargetRef.Name != target.Name
	})

	// Which Recommendation is active depends on those that an autoscaler owns.
	owned, err := targetsnapshot.AutoscalerOwned(ctx, c, list.Items)
	if err != nil {
		return nil, fmt.Errorf("reading the owners of recommendations: %w", err)
	}

	var out []Source
	for i := range list.Items {
		rec := &list.Items[i]
		source := Source{Source: "Recommendation " + rec.Name + recommendationOwner(rec)}
		if size, err := targetsnapshot.DesiredSize(rec); err == nil {
			source.setRequests(sumOf(size))
			if size.Replicas != nil {
				source.Replicas = fmt.Sprint(*size.Replicas)
			}
		}

		active := targetsnapshot.ActiveRecommendation(list.Items, rec.Spec.Type, owned)
		source.Acts, source.Why = recommendationActs(rec, active)
		out = append(out, source)
	}

	return out, nil
}

// recommendationOwner returns the rule or the autoscaler of a Recommendation.
func recommendationOwner(rec *analysisv1alpha1.Recommendation) string {
	if rule := rec.Labels[analysisv1alpha1.LabelRuleName]; rule != "" {
		return " (rule " + rule + ")"
	}

	if owner := metav1.GetControllerOfNoCopy(rec); owner != nil {
		return fmt.Sprintf(" (%s %s)", owner.Kind, owner.Name)
	}

	return ""
}

// recommendationActs reports whether a Recommendation is applied, and why or why not.
func recommendationActs(rec, active *analysisv1alpha1.Recommendation) (bool, string) {
	isFalse := func(kind string) *metav1.Condition {
		if c := meta.FindStatusCondition(rec.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			return c
		}

		return nil
	}

	// The first reason that applies is the one to remove first.
	switch {
	case isFalse(analysisv1alpha1.ConditionReady) != nil:
		return false, explainCondition(isFalse(analysisv1alpha1.ConditionReady))
	case targetsnapshot.StateAnnotations()[rec.Spec.Type] == "":
		return false, fmt.Sprintf("a proposal: Crane does not apply recommendations of type %s", rec.Spec.Type)
	case isFalse(analysisv1alpha1.ConditionApplicable) != nil:
		return false, explainCondition(isFalse(analysisv1alpha1.ConditionApplicable))

	case rec.Spec.AdoptionType != analysisv1alpha1.AdoptionTypeAuto:
		adopt := shellquote.Command([]string{"crane", "adopt", "-n", rec.Namespace, "--yes"}, strings.ToLower(rec.Spec.TargetRef.Kind)+"/"+rec.Spec.TargetRef.Name)
		return false, fmt.Sprintf("its adoptionType is %s: %s applies it", cmp.Or(rec.Spec.AdoptionType, analysisv1alpha1.AdoptionTypeStatusAndAnnotation), adopt)
	case active != nil && active.Name != rec.Name:
		return false, "Recommendation " + active.Name + recommendationOwner(active) + " has precedence"
	case isFalse(analysisv1alpha1.ConditionAdopted) != nil:
		return false, explainCondition(isFalse(analysisv1alpha1.ConditionAdopted))
	case rec.Status.Adoption != nil:
		return true, strings.TrimSuffix(rec.Status.Adoption.Phase+": "+rec.Status.Adoption.Message, ": ")
	}

	return true, "its adoptionType is Auto; craned has not started yet"
}

func explainCondition(c *metav1.Condition) string { return c.Reason + ": " + c.Message }

// verticalSources returns the EffectiveVerticalPodAutoscalers of a workload.
func verticalSources(ctx context.Context, c client.Reader, target workload.Workload) ([]Source, error) {
	var list autoscalingv1alpha1.EffectiveVerticalPodAutoscalerList
	if err := c.List(ctx, &list, client.InNamespace(target.Namespace)); err != nil {
		return nil, fmt.Errorf("listing vertical autoscalers: %w", err)
	}

	var out []Source
	for i := range list.Items {
		evpa := &list.Items[i]
		if evpa.Spec.TargetRef.Kind != target.Kind || evpa.Spec.TargetRef.Name != target.Name {
			continue
		}

		source := Source{Source: "EffectiveVerticalPodAutoscaler " + evpa.Name}
		source.setRequests(sumOf(targetsnapshot.VerticalSize(evpa)))

		source.Why = notEvaluatedYet
		if applied := meta.FindStatusCondition(evpa.Status.Conditions, "Applied"); applied != nil {
			source.Acts = applied.Status == metav1.ConditionTrue
			source.Why = explainCondition(applied)
		}

		// The estimators say where the number is from, the conditions whether it is applied.
		if basis := estimatorsOf(evpa); basis != "" {
			source.Why += "; sized by its estimators " + basis
		}
		if ready := meta.FindStatusCondition(evpa.Status.Conditions, autoscalingv1alpha1.ConditionReady); ready != nil {
			source.Why += "; " + ready.Message
		}

		out = append(out, source)
	}

	return out, nil
}

// foreignVPAs is the kind of the vertical autoscalers of the Kubernetes project.
const foreignVPAs = "VerticalPodAutoscaler"

// foreignVerticalSources returns the VerticalPodAutoscalers of a workload, beside which Crane changes no pods.
func foreignVerticalSources(ctx context.Context, c client.Reader, target workload.Workload) ([]Source, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(foreignvpa.GroupKind().WithVersion("v1"))
	list.SetKind(foreignVPAs + "List")

	err := c.List(ctx, &list, client.InNamespace(target.Namespace))
	switch {
	case apierrors.IsForbidden(err):
		return []Source{{Source: foreignVPAs, Why: "they cannot be read: " + err.Error()}}, nil
	case err != nil && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err)):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing VerticalPodAutoscalers: %w", err)
	}

	var out []Source
	for i := range list.Items {
		vpa := foreignvpa.Parse(&list.Items[i])
		if vpa.Target.Kind != target.Kind || vpa.Target.Name != target.Name {
			continue
		}

		source := Source{Source: foreignVPAs + " " + vpa.Name, Acts: vpa.Acts, Why: "only recommends, since its update mode, or that of all containers, is Off"}
		if vpa.Acts {
			source.Why = "sets requests of pods with update mode " + vpa.Mode + ". Crane changes no pods beside it"
		}

		source.setRequests(recommendedBy(&list.Items[i]))
		out = append(out, source)
	}

	return out, nil
}

// recommendedBy returns the sum of the requests that a VerticalPodAutoscaler recommends.
func recommendedBy(o *unstructured.Unstructured) workload.Resources {
	var sum workload.Resources
	containers, _, _ := unstructured.NestedSlice(o.Object, "status", "recommendation", "containerRecommendations")
	for _, c := range containers {
		container, _ := c.(map[string]any)
		target, _, _ := unstructured.NestedStringMap(container, "target")
		if cpu, err := apiresource.ParseQuantity(target["cpu"]); err == nil {
			sum.CPU += units.MilliCPU(cpu.MilliValue())
		}
		if memory, err := apiresource.ParseQuantity(target["memory"]); err == nil {
			sum.Memory += units.Bytes(memory.Value())
		}
	}

	return sum
}

// estimatorsOf returns the estimators whose results apply.
func estimatorsOf(evpa *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) string {
	var names []string
	for _, d := range evpa.Status.Decisions {
		if d.Estimator != "" && !slices.Contains(names, d.Estimator) {
			names = append(names, d.Estimator)
		}
	}

	slices.Sort(names)
	return strings.Join(names, ", ")
}

// aheadSources returns the EffectiveHorizontalPodAutoscalers of a workload. They act through the HPA that they own.
func aheadSources(ctx context.Context, c client.Reader, target workload.Workload) ([]Source, error) {
	var list autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerList
	if err := c.List(ctx, &list, client.InNamespace(target.Namespace)); err != nil {
		return nil, fmt.Errorf("listing effective horizontal autoscalers: %w", err)
	}

	var out []Source
	for i := range list.Items {
		ehpa := &list.Items[i]
		if ehpa.Spec.ScaleTargetRef.Kind != target.Kind || ehpa.Spec.ScaleTargetRef.Name != target.Name {
			continue
		}

		source := Source{Source: effectiveHPAKind + " " + ehpa.Name, Why: notEvaluatedYet}
		// The number of replicas is unknown until craned has evaluated the autoscaler.
		if ehpa.Status.ExpectReplicas != nil {
			source.Replicas = fmt.Sprint(*ehpa.Status.ExpectReplicas)
		}

		if ready := meta.FindStatusCondition(ehpa.Status.Conditions, autoscalingv1alpha1.ConditionReady); ready != nil {
			source.Acts = ready.Status == metav1.ConditionTrue && ehpa.Spec.ScaleStrategy != autoscalingv1alpha1.ScaleStrategyPreview
			source.Why = strings.TrimSuffix(explainCondition(ready), ": ")
			if ehpa.Status.Why != "" {
				source.Why += "; " + ehpa.Status.Why
			}
		}

		out = append(out, source)
	}

	return out, nil
}

// horizontalSources returns the HorizontalPodAutoscalers of a workload.
func horizontalSources(ctx context.Context, c client.Reader, target workload.Workload) ([]Source, error) {
	var list autoscalingv2.HorizontalPodAutoscalerList
	if err := c.List(ctx, &list, client.InNamespace(target.Namespace)); err != nil {
		return nil, fmt.Errorf("listing horizontal autoscalers: %w", err)
	}

	var out []Source
	for i := range list.Items {
		hpa := &list.Items[i]
		if hpa.Spec.ScaleTargetRef.Kind != target.Kind || hpa.Spec.ScaleTargetRef.Name != target.Name {
			continue
		}

		owner := metav1.GetControllerOfNoCopy(hpa)
		owned := owner != nil && owner.Kind == effectiveHPAKind
		var why strings.Builder
		fmt.Fprintf(&why, "sets replicas within %d and %d", max(1, valueOrZero(hpa.Spec.MinReplicas)), hpa.Spec.MaxReplicas)

		// A target of utilization depends on the request, which is why Crane does not change that alone.
		for _, m := range hpa.Spec.Metrics {
			if m.Resource != nil && m.Resource.Target.AverageUtilization != nil {
				fmt.Fprintf(&why, ", at %d %% of the %s request", *m.Resource.Target.AverageUtilization, m.Resource.Name)
				if !owned {
					why.WriteString(". Crane keeps that request unless it owns the autoscaler, because a change of it alone would move the usage at which pods are added")
				}
			}
		}

		if owned {
			fmt.Fprintf(&why, "; written by %s %s", owner.Kind, owner.Name)
		}

		out = append(out, Source{
			Source:   "HorizontalPodAutoscaler " + hpa.Name,
			Replicas: desiredReplicas(hpa),
			Acts:     true,
			Why:      why.String(),
		})
	}

	return out, nil
}

// sumOf returns the sum of the requests of all containers.
func sumOf(size adoption.Size) workload.Resources {
	var sum workload.Resources
	for _, c := range size.Containers {
		sum.CPU += valueOrZero(c.CPURequest)
		sum.Memory += valueOrZero(c.MemoryRequest)
	}

	return sum
}

// setRequests sets the requests of a pod; 0 means none.
func (s *Source) setRequests(sum workload.Resources) {
	if sum.CPU > 0 {
		s.CPU = units.FormatCPU(sum.CPU)
	}
	if sum.Memory > 0 {
		s.Memory = units.FormatMemory(sum.Memory)
	}
}

func valueOrZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}

	return *v
}

// desiredReplicas returns the replicas that an autoscaler sets; empty before its controller has read the metrics for the first time.
func desiredReplicas(hpa *autoscalingv2.HorizontalPodAutoscaler) string {
	if hpa.Status.LastScaleTime == nil && hpa.Status.DesiredReplicas == 0 {
		return ""
	}

	return fmt.Sprint(hpa.Status.DesiredReplicas)
}
