// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/gpu"
	"crane.io/crane/pkg/recommend/hpa"
	"crane.io/crane/pkg/recommend/idlenode"
	"crane.io/crane/pkg/recommend/replicas"
	"crane.io/crane/pkg/recommend/service"
	"crane.io/crane/pkg/recommend/throttle"
	"crane.io/crane/pkg/recommend/unused"
	"crane.io/crane/pkg/recommend/volume"
	"crane.io/crane/pkg/rightsize"
)

// recommender is a kind of recommendation that craned can compute.
type recommender struct {
	// name is the type of its Recommendations and its name in rules and in the configuration file.
	name string
	// external recommenders are those of the program that craned was built into.
	external bool
	// supports reports whether it can evaluate targets of a kind.
	supports func(workload.Ref) bool
	// configure parses the settings of the configuration file, overridden by those of the rule. It may modify the map.
	configure func(config map[string]string) (evaluator, error)
}

// evaluator is a recommender with the settings of one rule, for one batch. It holds the data that it gathered.
type evaluator interface {
	// gather reads the data for all targets. The number of its requests does not depend on the number of targets, or grows
	// by one per batch. An error ends the batch without a write; the batch is retried.
	gather(ctx context.Context, d *runData, targets []workload.Workload) error
	// decide is called after gather, for one target after the other, and changes nothing in the cluster. An error concerns
	// its target alone, whose last value is kept.
	decide(d *runData, target workload.Workload) (decision, error)
}

// usageConsumer is an evaluator that needs the usage of containers.
type usageConsumer interface {
	// usageWindow returns the length of the history that it needs.
	usageWindow() time.Duration
}

// totalsConsumer is a usageConsumer that needs the sum over the pods of a workload.
type totalsConsumer interface{ needsTotals() bool }

// decision is the result of evaluating one target.
type decision struct {
	plan recommend.Plan
	// recommended, current and value become recommendedInfo, currentInfo and recommendedValue. They are empty for
	// recommenders that only name an action.
	recommended, current, value string
	// appliesTo is the object that recommendedInfo applies to; nil for the target itself.
	appliesTo *corev1.ObjectReference
	// evidence is the replay of a calibrated policy; nil for other policies.
	evidence []analysisv1alpha1.CalibrationEvidence
	// savings is nil if they are unknown.
	savings *analysisv1alpha1.Savings
	// pricesUnknown marks decisions without prices, which keep the savings of the last run.
	pricesUnknown bool
	// notApplicable is the reason why a ready recommendation must not be applied; nil if it may.
	notApplicable *condition
	// annotations are set on the Recommendation, or removed if they are empty.
	annotations map[string]string
}

// configuredRecommender is a recommender with the settings of one rule.
type configuredRecommender struct {
	recommender
	evaluator
	// order is the position in the registry: later recommenders use the plans of earlier ones.
	order int
	// accepts reports whether acceptedResources of the configuration include a target.
	accepts  func(workload.Workload) bool
	cooldown time.Duration
}

// Registry holds the recommenders of craned in evaluation order.
type Registry struct{ recommenders []recommender }

// BuiltinRegistry returns the recommenders of Crane.
func BuiltinRegistry() Registry { return Registry{builtinRecommenders()} }

// NewRegistry returns the recommenders of Crane, followed by external ones. Two of one name are an error.
func NewRegistry(external ...recommend.Recommender) (Registry, error) {
	registry := BuiltinRegistry()
	for _, e := range external {
		if err := e.Validate(); err != nil {
			return Registry{}, err
		}

		if registry.indexOf(e.Name) >= 0 {
			return Registry{}, fmt.Errorf("recommender %s: another recommender has this name", e.Name)
		}

		registry.recommenders = append(registry.recommenders, newExternalRecommender(e))
	}

	return registry, nil
}

// indexOf returns the position of a recommender; -1 for an unknown name.
func (r Registry) indexOf(name string) int {
	return slices.IndexFunc(r.recommenders, func(candidate recommender) bool { return candidate.name == name })
}

// builtinRecommenders returns Crane's recommenders in evaluation order: HPA follows Resource, whose requests it uses.
func builtinRecommenders() []recommender {
	return []recommender{
		newRecommender(analysisv1alpha1.AnalysisTypeResource, supportsWorkloads, parsePolicies,
			func(s rightsize.PolicySet) evaluator { return &resourceEvaluator{policies: s} }),
		newRecommender(analysisv1alpha1.AnalysisTypeReplicas, supportsScalable, replicas.ParseSettings,
			func(s replicas.Settings) evaluator { return &replicasEvaluator{settings: s} }),
		newRecommender(analysisv1alpha1.AnalysisTypeHPA, supportsScalable, hpa.ParseSettings,
			func(s hpa.Settings) evaluator { return &hpaEvaluator{settings: s} }),
		newRecommender(analysisv1alpha1.AnalysisTypeIdleNode, supportsKinds("Node"), idlenode.ParseSettings,
			func(s idlenode.Settings) evaluator { return &idleNodeEvaluator{settings: s} }),
		newRecommender(analysisv1alpha1.AnalysisTypeVolume, supportsKinds("PersistentVolume"), volume.ParseSettings,
			func(s volume.Settings) evaluator { return &volumeEvaluator{settings: s} }),
		newRecommender(analysisv1alpha1.AnalysisTypeService, supportsKinds("Service"), service.ParseSettings,
			func(s service.Settings) evaluator { return &serviceEvaluator{settings: s} }),
		newRecommender(analysisv1alpha1.AnalysisTypeUnused, supportsScalable, unused.ParseSettings,
			func(s unused.Settings) evaluator { return &unusedEvaluator{settings: s} }),
		newRecommender(analysisv1alpha1.AnalysisTypePacking, supportsWorkloads, parsePolicies,
			func(s rightsize.PolicySet) evaluator { return &packingEvaluator{policies: s} }),
		newRecommender(analysisv1alpha1.AnalysisTypeThrottle, supportsWorkloads, throttle.ParseSettings,
			func(s throttle.Settings) evaluator { return &throttleEvaluator{settings: s} }),
		newRecommender(analysisv1alpha1.AnalysisTypeGPU, supportsWorkloads, gpu.ParseSettings,
			func(s gpu.Settings) evaluator { return &gpuEvaluator{settings: s} }),
	}
}

func newRecommender[S any](
	name analysisv1alpha1.AnalysisType, supports func(workload.Ref) bool, parse func(map[string]string) (S, error), build func(S) evaluator,
) recommender {
	return recommender{name: string(name), supports: supports, configure: func(config map[string]string) (evaluator, error) {
		s, err := parse(config)
		return build(s), err
	}}
}

// kindsWithoutPods returns the supported kinds of the core group that run no pods.
func kindsWithoutPods() []string {
	return []string{"Node", "Service", "PersistentVolume", "PersistentVolumeClaim", "Namespace"}
}

// supportsWorkloads accepts everything that runs pods, custom kinds included.
func supportsWorkloads(ref workload.Ref) bool {
	return workload.GroupOf(ref.APIVersion, ref.Kind) != "" || !slices.Contains(kindsWithoutPods(), ref.Kind)
}

// supportsScalable accepts everything that runs an adjustable number of pods.
func supportsScalable(ref workload.Ref) bool {
	return supportsWorkloads(ref) && !slices.Contains([]string{"DaemonSet", "Job", "CronJob", "Pod"}, ref.Kind)
}

// supportsKinds accepts the given kinds of the core group.
func supportsKinds(kinds ...string) func(workload.Ref) bool {
	return func(ref workload.Ref) bool {
		return workload.GroupOf(ref.APIVersion, ref.Kind) == "" && slices.Contains(kinds, ref.Kind)
	}
}
