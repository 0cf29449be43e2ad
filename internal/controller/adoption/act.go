// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	shared "crane.io/crane/internal/adoption"
	"crane.io/crane/pkg/adoption"
)

// retryConflict is how soon a look is repeated that somebody else's write overtook.
const retryConflict = time.Second

// managerOf is the field manager of what is adopted of a type. What it owns can be told apart, and given back.
func managerOf(kind analysisv1alpha1.AnalysisType) string {
	return "craned-adoption-" + strings.ToLower(string(kind))
}

func mentionsResources(fields []byte) bool { return bytes.Contains(fields, []byte(`"f:resources"`)) }

// act carries a plan out: it writes the state down, and then does what the state says. Each write names the UID and the
// version that it is meant for; one that somebody overtook is decided anew.
func (r *Reconciler) act(
	ctx context.Context, s *scene, kind analysisv1alpha1.AnalysisType, rec *analysisv1alpha1.Recommendation, before adoption.State, plan adoption.Plan,
) (verdict, error) {
	v := verdict{again: plan.Again}
	wrote, err := r.saveState(ctx, s, kind, before, plan.State)
	if apierrors.IsConflict(err) {
		return verdict{again: retryConflict}, nil
	}
	if err != nil {
		return v, err
	}
	if wrote { // Once for each step: a look that does not change the state tells nothing.
		r.tell(s, rec, plan)
	}
	var errs []error
	for _, c := range plan.Changes {
		err := r.resize(ctx, s, kind, c)
		switch {
		case err == nil:
			r.Metrics.resized("resized")
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			r.Metrics.resized("overtaken")
			v.again = soonest(v.again, retryConflict)
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
			r.Metrics.resized("refused")
			v.again = r.Settings.Policy.Settle // It is refused again until something changes.
			plan.Remarks = append(plan.Remarks, fmt.Sprintf("pod %s: %v", c.Pod, err))
			r.Events.Eventf(podReference(s, c), nil, corev1.EventTypeWarning, "AdoptionRefused", "Resize", "%s", cut(err.Error()))
		default:
			r.Metrics.resized("failed")
			errs = append(errs, err)
		}
	}
	if plan.Replicas != nil {
		errs = append(errs, r.scale(ctx, s, *plan.Replicas))
	}
	if plan.Template != nil {
		errs = append(errs, r.changeTemplate(ctx, s, kind, plan, before))
	}
	if rec != nil {
		errs = append(errs, r.show(ctx, rec, plan, nil))
	}
	if plan.State.Phase == adoption.Stopped {
		v.reason, v.message = reasonStopped, plan.State.Reason
	}
	for _, err := range errs {
		if apierrors.IsConflict(err) {
			v.again = soonest(v.again, retryConflict)
		} else if err != nil && !apierrors.IsNotFound(err) {
			return v, errors.Join(errs...)
		}
	}
	return v, nil
}

// saveState writes the state into its annotation where it has changed, and tells whether it has.
func (r *Reconciler) saveState(ctx context.Context, s *scene, kind analysisv1alpha1.AnalysisType, before, after adoption.State) (bool, error) {
	old, err := before.Text()
	if err != nil {
		return false, err //nolint:wrapcheck // It says what it is.
	}
	text, err := after.Text()
	if err != nil || text == old {
		return false, err //nolint:wrapcheck // As above.
	}
	apply := s.identity()
	apply.SetResourceVersion(s.object.GetResourceVersion())
	if text != "" { // An apply without the annotation takes it away.
		apply.SetAnnotations(map[string]string{stateKeys()[kind]: text})
	}
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(apply), client.FieldOwner(managerOf(kind)+"-state"), client.ForceOwnership)
	if err != nil {
		return false, fmt.Errorf("writing the state of adoption on %s %s/%s: %w", s.key.Kind, s.key.Namespace, s.key.Name, err)
	}
	s.object.SetResourceVersion(apply.GetResourceVersion())
	return true, nil
}

// identity is the target with nothing in it but who it is.
func (s *scene) identity() *unstructured.Unstructured {
	apiVersion, kind := s.gvk.GVK.ToAPIVersionAndKind()
	return reference(corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: s.key.Namespace, Name: s.key.Name}, s.object)
}

// resize gives one pod its new size in place.
func (r *Reconciler) resize(ctx context.Context, s *scene, kind analysisv1alpha1.AnalysisType, c adoption.Change) error {
	for i := range s.pods {
		pod := &s.pods[i]
		if string(pod.UID) != c.UID {
			continue
		}
		body := client.ApplyConfigurationFromUnstructured(shared.ResizeOf(pod, c.To))
		if err := r.Client.SubResource("resize").Apply(ctx, body, client.FieldOwner(managerOf(kind)), client.ForceOwnership); err != nil {
			return fmt.Errorf("resizing pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		ctrl.LoggerFrom(ctx).WithName("adoption").Info("Resized", "namespace", pod.Namespace, "pod", pod.Name, "from", c.From.String(), "to", c.To.String())
		return nil
	}
	return nil
}

func podReference(s *scene, c adoption.Change) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: s.key.Namespace, Name: c.Pod, UID: types.UID(c.UID)}
}

// scale sets the number of replicas through the subresource scale.
func (r *Reconciler) scale(ctx context.Context, s *scene, to int32) error {
	body := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(to)}}}
	body.SetAPIVersion("autoscaling/v1")
	body.SetKind("Scale")
	body.SetNamespace(s.key.Namespace)
	body.SetName(s.key.Name)
	body.SetUID(s.object.GetUID())
	body.SetResourceVersion(s.object.GetResourceVersion())
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("scaling %s %s/%s: %w", s.key.Kind, s.key.Namespace, s.key.Name, err)
	}
	target := s.identity()
	err = r.Client.SubResource("scale").Patch(ctx, target, client.RawPatch(types.ApplyPatchType, raw),
		client.FieldOwner(managerOf(analysisv1alpha1.AnalysisTypeReplicas)), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("scaling %s %s/%s to %d: %w", s.key.Kind, s.key.Namespace, s.key.Name, to, err)
	}
	return nil
}

// changeTemplate writes the size into the pod template as ours, or gives it back to whom it was taken from: as an update in
// that one's name, after which nothing of it is ours.
func (r *Reconciler) changeTemplate(
	ctx context.Context, s *scene, kind analysisv1alpha1.AnalysisType, plan adoption.Plan, before adoption.State,
) error {
	body := s.identity()
	body.SetResourceVersion(s.object.GetResourceVersion())
	spec := map[string]any{"template": shared.TemplateOf(s.spec, *plan.Template)}
	if s.key.Kind == "CronJob" {
		spec = map[string]any{"jobTemplate": map[string]any{"spec": spec}}
	}
	body.Object["spec"] = spec
	var err error
	if plan.Restore && before.Owner != "" {
		var raw []byte
		if raw, err = json.Marshal(body); err == nil {
			err = r.Client.Patch(ctx, s.object, client.RawPatch(types.StrategicMergePatchType, raw), client.FieldOwner(before.Owner))
		}
	} else {
		err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), client.FieldOwner(managerOf(kind)), client.ForceOwnership)
	}
	if err != nil {
		return fmt.Errorf("writing the pod template of %s %s/%s: %w", s.key.Kind, s.key.Namespace, s.key.Name, err)
	}
	return nil
}

// tell writes an event for each thing that has happened, on the Recommendation and on the target.
func (r *Reconciler) tell(s *scene, rec *analysisv1alpha1.Recommendation, plan adoption.Plan) {
	// Events that differ in their text alone would be counted as one, and only the first text kept.
	action := fmt.Sprintf("AdoptStep%d", plan.State.Steps)
	for _, n := range plan.Notices {
		kind := corev1.EventTypeNormal
		if n.Warning {
			kind = corev1.EventTypeWarning
		}
		r.Metrics.told(n.Reason)
		r.Events.Eventf(s.identity(), nil, kind, n.Reason, action, "%s", cut(n.Text))
		if rec != nil {
			r.Events.Eventf(rec, nil, kind, n.Reason, action, "%s", cut(n.Text))
		}
	}
}

// show brings the status of a Recommendation in line.
func (r *Reconciler) show(ctx context.Context, rec *analysisv1alpha1.Recommendation, plan adoption.Plan, preview []analysisv1alpha1.AdoptionPatch) error {
	status := &analysisv1alpha1.AdoptionStatus{
		Phase: string(plan.State.Phase), Message: cut(plan.Summary), Steps: int32(min(plan.State.Steps, 1<<30)), //nolint:gosec // G115: bounded.
		Remarks: plan.Remarks[:min(len(plan.Remarks), 20)], DryRun: preview,
	}
	for i := range status.Remarks {
		status.Remarks[i] = cut(status.Remarks[i])
	}
	if equality.Semantic.DeepEqual(rec.Status.Adoption, status) {
		return nil
	}
	changed := rec.DeepCopy()
	changed.Status.Adoption = status
	if err := r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(rec, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
	}
	rec.Status.Adoption, rec.ResourceVersion = status, changed.ResourceVersion
	return nil
}

// preview says in the status what would be sent, and sends nothing.
func (r *Reconciler) preview(
	ctx context.Context, s *scene, kind analysisv1alpha1.AnalysisType, rec *analysisv1alpha1.Recommendation, plan adoption.Plan,
) (verdict, error) {
	v := verdict{again: max(plan.Again, r.Settings.Policy.Look)}
	if rec == nil {
		return v, nil
	}
	var all []analysisv1alpha1.AdoptionPatch
	add := func(name string, body *unstructured.Unstructured) {
		raw, err := json.Marshal(body)
		if err == nil && len(all) < 20 {
			all = append(all, analysisv1alpha1.AdoptionPatch{Object: name, Patch: string(raw)})
		}
	}
	for _, c := range plan.Changes {
		for i := range s.pods {
			if string(s.pods[i].UID) == c.UID {
				add("pods/"+c.Pod+"/resize", shared.ResizeOf(&s.pods[i], c.To))
			}
		}
	}
	name := strings.ToLower(s.key.Kind) + "s/" + s.key.Name
	if plan.Replicas != nil {
		add(name+"/scale", &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(*plan.Replicas)}}})
	}
	if plan.Template != nil {
		add(name, &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": shared.TemplateOf(s.spec, *plan.Template)}}})
	}
	plan.State = adoption.State{Phase: adoption.Phase(s.phase(kind))}
	plan.Summary = "dry run: " + plan.Summary
	return v, r.show(ctx, rec, plan, all)
}

// phase is what the target's annotation says today.
func (s *scene) phase(kind analysisv1alpha1.AnalysisType) string {
	state, err := adoption.ParseState(s.object.GetAnnotations()[stateKeys()[kind]])
	if err != nil {
		return ""
	}
	return string(state.Phase)
}
