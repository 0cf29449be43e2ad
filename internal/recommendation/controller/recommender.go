// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend"
)

// recommender is one entry of the list of recommenders.
type recommender struct {
	// name is the type of its Recommendations, and what rules and the configuration file call it.
	name string
	// supports tells which of a rule's targets it can look at; the others are not its.
	supports func(workload.Ref) bool
	// configure reads the settings: those of the file with those of the rule over them, in a map of its own.
	configure func(config map[string]string) (evaluator, error)
}

// evaluator is a recommender with the settings of one rule, for one pass. It keeps what it gathered in itself.
type evaluator interface {
	// gather reads what the decisions about all targets need, in a number of requests that does not grow with them, or
	// grows in fixed batches. After an error nothing of the pass is written, and it is tried again.
	gather(ctx context.Context, w *passData, targets []workload.Workload) error
	// decide is called after gather, for one target after the other, and changes nothing. Its error is this target's
	// alone: the last value is kept and the reason told.
	decide(w *passData, target workload.Workload) (decision, error)
}

// usageConsumer is a job that decides from what containers used.
type usageConsumer interface {
	// usageWindow is how far back it looks.
	usageWindow() time.Duration
}

// decision is what shall be written of one target.
type decision struct {
	plan recommend.Plan
	// recommended and current are recommendedInfo and currentInfo, value is recommendedValue. They are empty for
	// recommenders that only name an action.
	recommended, current, value string
	// appliesTo is what recommendedInfo applies to; nil where that is the target itself.
	appliesTo *corev1.ObjectReference
	// savings is what it is worth; nil where that cannot be told.
	savings *analysisv1alpha1.Savings
	// pricesUnknown tells that there are no prices at the moment: what the last round said of savings stands.
	pricesUnknown bool
	// notApplicable says why it must not be applied although it is ready; nil where it may.
	notApplicable *condition
	// annotations are set on the Recommendation, or taken away where they are empty.
	annotations map[string]string
}

// configuredRecommender is a recommender as one rule uses it.
type configuredRecommender struct {
	recommender
	evaluator
	// accepts is what the configuration says of targets, beyond what the recommender can look at.
	accepts  func(workload.Workload) bool
	cooldown time.Duration
}

// supportsTarget tells whether a target of the rule is one of the recommender's kinds.
func (r configuredRecommender) supportsTarget(w workload.Workload) bool { return r.supports(w.Ref) }

// kindsWithoutPods are the kinds that can be selected and run no pods.
func kindsWithoutPods() []string {
	return []string{"Node", "Service", "PersistentVolume", "PersistentVolumeClaim", "Namespace"}
}

// isClusterScoped tells of the kinds that are in no namespace.
func isClusterScoped(group, kind string) bool {
	return group == "" && (kind == "Node" || kind == "PersistentVolume" || kind == "Namespace")
}

// supportsWorkloads is everything that runs pods, custom kinds included.
func supportsWorkloads(ref workload.Ref) bool {
	return targetindex.GroupOf(ref.APIVersion) != "" || !slices.Contains(kindsWithoutPods(), ref.Kind)
}

// supportsScalable is everything that runs a number of pods that can be set.
func supportsScalable(ref workload.Ref) bool {
	return supportsWorkloads(ref) && !slices.Contains([]string{"DaemonSet", "Job", "CronJob", "Pod"}, ref.Kind)
}

// supportsKinds is kinds of the core group.
func supportsKinds(kinds ...string) func(workload.Ref) bool {
	return func(ref workload.Ref) bool {
		return targetindex.GroupOf(ref.APIVersion) == "" && slices.Contains(kinds, ref.Kind)
	}
}
