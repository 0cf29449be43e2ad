// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommendation

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/workload"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
)

// resourceRecommender says what containers should request.
func resourceRecommender() recommender {
	return recommender{
		name:  string(analysisv1alpha1.AnalysisTypeResource),
		takes: takesWorkloads,
		configure: func(config map[string]string) (job, error) {
			policies, err := policiesOf(config)
			return &resourceJob{policies: policies}, err
		},
	}
}

type resourceJob struct{ policies rightsize.PolicySet }

func (j *resourceJob) usageWindow() time.Duration { return j.policies.Window() }

func (j *resourceJob) gather(ctx context.Context, w *world, _ []workload.Workload) error {
	if _, err := w.usage(ctx); err != nil {
		return err
	}
	w.prices(ctx)
	return nil
}

func (j *resourceJob) decide(w *world, target workload.Workload) (decision, error) {
	policy, why := j.policies.For(target.Subject())
	in := w.read.usage.Resource(target, policy, w.now)
	in.PolicyWhy = why
	scaler := w.autoscaler(target.Ref)
	in.Autoscaler = scaler.asInput()
	plan := resource.Decide(in)
	w.plans[target.Ref] = plan
	out := decision{
		plan: recommend.Plan{
			State: plan.State, Action: plan.Action, Description: plan.Description, Incomplete: plan.Incomplete,
		},
		annotations: map[string]string{analysisv1alpha1.AnnotationScalePoint: ""},
	}
	if plan.State != recommend.Ready {
		return out, nil
	}
	if err := writeResource(&out, target, plan); err != nil {
		return decision{}, err
	}
	out.savings, out.unpriced = w.read.prices.savingsOf(target, plan), w.read.prices == nil
	err := scaler.bind(&out, plan.ScalePoint)
	return out, err
}

// writeResource writes the requests in gocrane's formats.
func writeResource(out *decision, target workload.Workload, plan resource.Plan) error {
	current, recommended := changesOf(target, plan)
	var err error
	if out.current, err = patchOf(target.Kind, current); err != nil {
		return err
	}
	if out.recommended, err = patchOf(target.Kind, recommended); err != nil {
		return err
	}
	out.value, err = valueOf(recommended)
	return err
}

// autoscaler is what acts on the utilisation of a workload's requests; without a name where nothing does.
type autoscaler struct {
	workload.Autoscaler
	targets []workload.UtilizationTarget
}

// autoscaler is that of a workload. Several HorizontalPodAutoscalers of one workload are nobody's to coordinate: they
// count as one that is not Crane's.
func (w *world) autoscaler(ref workload.Ref) autoscaler {
	var out autoscaler
	for i, a := range w.read.constraints.Autoscalers(ref) {
		if targets := a.UtilizationTargets(); len(targets) > 0 {
			out.targets = append(out.targets, targets...)
			if out.Autoscaler = a; i > 0 {
				out.Owner = ""
			}
		}
	}
	return out
}

func (a autoscaler) asInput() *resource.Autoscaler {
	if len(a.targets) == 0 {
		return nil
	}
	in := &resource.Autoscaler{Name: a.Name, Owned: a.Owner != ""}
	for _, t := range a.targets {
		in.Targets = append(in.Targets, resource.Target{
			Memory: t.Resource == corev1.ResourceMemory, Container: t.Container, Percent: t.Percent,
		})
	}
	return in
}

// scalePoint is the annotation of that name.
type scalePoint struct {
	Kind    string            `json:"kind"`
	Name    string            `json:"name"`
	Targets []scalePointShift `json:"targets"`
}

// scalePointShift is a target that moves, in percent of the request.
type scalePointShift struct {
	Resource  corev1.ResourceName `json:"resource"`
	Container string              `json:"container,omitempty"`
	From      int32               `json:"from"`
	To        int32               `json:"to"`
}

// bind ties the requests to the autoscaler: they change together or not at all.
func (a autoscaler) bind(out *decision, moves []resource.Move) error {
	switch {
	case len(moves) == 0:
		return nil
	case a.Owner == "":
		out.held = &state{
			kind: analysisv1alpha1.ConditionApplicable, reason: reasonAutoscalerNotOwned,
			message: fmt.Sprintf("HorizontalPodAutoscaler %s acts on these requests and is not Crane's. "+
				"Its targets would have to change together with them; the description says to what.", a.Name),
		}
		return nil
	}
	point := scalePoint{Kind: "EffectiveHorizontalPodAutoscaler", Name: a.Owner}
	for _, m := range moves {
		of := corev1.ResourceCPU
		if m.Memory {
			of = corev1.ResourceMemory
		}
		point.Targets = append(point.Targets, scalePointShift{Resource: of, Container: m.Container, From: m.Percent, To: m.To})
	}
	raw, err := json.Marshal(point)
	if err != nil {
		return fmt.Errorf("encoding the scale point: %w", err)
	}
	out.annotations[analysisv1alpha1.AnnotationScalePoint] = string(raw)
	return nil
}
