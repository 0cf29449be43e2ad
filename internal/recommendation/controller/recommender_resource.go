// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
)

// resourceRecommender says what containers should request.
func resourceRecommender() recommender {
	return recommender{
		name:     string(analysisv1alpha1.AnalysisTypeResource),
		supports: supportsWorkloads,
		configure: func(config map[string]string) (evaluator, error) {
			policies, err := parsePolicies(config)
			return &resourceEvaluator{policies: policies}, err
		},
	}
}

type resourceEvaluator struct{ policies rightsize.PolicySet }

func (j *resourceEvaluator) usageWindow() time.Duration { return j.policies.Window() }

func (j *resourceEvaluator) gather(ctx context.Context, w *passData, _ []workload.Workload) error {
	if _, err := w.usage(ctx); err != nil {
		return err
	}
	w.prices(ctx)
	return nil
}

func (j *resourceEvaluator) decide(w *passData, target workload.Workload) (decision, error) {
	policy, why := j.policies.For(target.Subject())
	in := w.read.usage.ResourceInput(target, policy, w.now)
	in.PolicyWhy = why
	scaler := w.autoscaler(target.Ref)
	in.Autoscaler = scaler.asInput()
	plan := resource.Decide(in)
	w.plans[target.Ref] = plan
	out := decision{
		plan: recommend.Plan{
			State: plan.State, Action: plan.Action, Description: plan.Description, Incomplete: plan.Incomplete,
			Steps: plan.Steps(),
		},
		annotations: map[string]string{analysisv1alpha1.AnnotationScalePoint: ""},
	}
	if plan.State != recommend.Ready {
		return out, nil
	}
	if err := writeResource(&out, target, plan); err != nil {
		return decision{}, err
	}
	out.savings, out.pricesUnknown = w.read.prices.savingsOf(target, plan), w.read.prices == nil
	err := scaler.bindScalePoint(&out, plan.ScalePoint)
	return out, err
}

// writeResource writes the requests in gocrane's formats.
func writeResource(out *decision, target workload.Workload, plan resource.Plan) error {
	current, recommended := changesOf(target, plan)
	var err error
	if out.current, err = encodePatch(target.Kind, current); err != nil {
		return err
	}
	if out.recommended, err = encodePatch(target.Kind, recommended); err != nil {
		return err
	}
	out.value, err = encodeValue(recommended)
	return err
}

// autoscaler is what acts on the utilisation of a workload's requests; without a name where nothing does.
type autoscaler struct {
	workload.Autoscaler
	targets []workload.UtilizationTarget
}

// autoscaler is that of a workload.
func (w *passData) autoscaler(ref workload.Ref) autoscaler {
	one, targets := w.read.constraints.UtilizationAutoscaler(ref)
	return autoscaler{one, targets}
}

func (a autoscaler) asInput() *resource.Autoscaler {
	return targetsnapshot.SizingAutoscaler(a.Autoscaler, a.targets)
}

// bindScalePoint ties the requests to the autoscaler: they change together or not at all.
func (a autoscaler) bindScalePoint(out *decision, moves []resource.TargetChange) error {
	switch {
	case len(moves) == 0:
		return nil
	case a.Owner == "":
		out.notApplicable = &condition{
			conditionType: analysisv1alpha1.ConditionApplicable, reason: reasonAutoscalerNotOwned,
			message: fmt.Sprintf("HorizontalPodAutoscaler %s acts on these requests and is not Crane's. "+
				"Its targets would have to change together with them; the description says to what.", a.Name),
		}
		return nil
	}
	text, err := targetsnapshot.EncodeScalePoint(a.Owner, moves)
	if err != nil {
		return err
	}
	out.annotations[analysisv1alpha1.AnnotationScalePoint] = text
	return nil
}
