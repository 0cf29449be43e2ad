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
	// takes tells which of a rule's targets it can look at; the others are not its.
	takes func(workload.Ref) bool
	// configure reads the settings: those of the file with those of the rule over them, in a map of its own.
	configure func(config map[string]string) (job, error)
}

// job is a recommender with the settings of one rule, for one pass. It keeps what it gathered in itself.
type job interface {
	// gather reads what the decisions about all targets need, in a number of requests that does not grow with them, or
	// grows in fixed batches. After an error nothing of the pass is written, and it is tried again.
	gather(ctx context.Context, w *world, targets []workload.Workload) error
	// decide is called after gather, for one target after the other, and changes nothing. Its error is this target's
	// alone: the last value is kept and the reason told.
	decide(w *world, target workload.Workload) (decision, error)
}

// usageReader is a job that decides from what containers used.
type usageReader interface {
	// usageWindow is how far back it looks.
	usageWindow() time.Duration
}

// decision is what shall be written of one target.
type decision struct {
	plan recommend.Plan
	// recommended and current are recommendedInfo and currentInfo, value is recommendedValue. They are empty for
	// recommenders that only name an action.
	recommended, current, value string
	// on is what recommendedInfo applies to; nil where that is the target itself.
	on *corev1.ObjectReference
	// savings is what it is worth; nil where that cannot be told.
	savings *analysisv1alpha1.Savings
	// unpriced tells that there are no prices at the moment: what the last round said of savings stands.
	unpriced bool
	// held says why it must not be applied although it is ready; nil where it may.
	held *state
	// annotations are set on the Recommendation, or taken away where they are empty.
	annotations map[string]string
}

// run is a recommender as one rule uses it.
type run struct {
	recommender
	job
	// accepts is what the configuration says of targets, beyond what the recommender can look at.
	accepts  func(workload.Workload) bool
	cooldown time.Duration
}

// looksAt tells whether a target of the rule is one of the recommender's kinds.
func (r run) looksAt(w workload.Workload) bool { return r.takes(w.Ref) }

// otherKinds are the kinds that can be selected and run no pods.
func otherKinds() []string {
	return []string{"Node", "Service", "PersistentVolume", "PersistentVolumeClaim", "Namespace"}
}

// clusterScoped tells of the kinds that are in no namespace.
func clusterScoped(group, kind string) bool {
	return group == "" && (kind == "Node" || kind == "PersistentVolume" || kind == "Namespace")
}

// takesWorkloads is everything that runs pods, custom kinds included.
func takesWorkloads(ref workload.Ref) bool {
	return targetindex.GroupOf(ref.APIVersion) != "" || !slices.Contains(otherKinds(), ref.Kind)
}

// takesScalable is everything that runs a number of pods that can be set.
func takesScalable(ref workload.Ref) bool {
	return takesWorkloads(ref) && !slices.Contains([]string{"DaemonSet", "Job", "CronJob", "Pod"}, ref.Kind)
}

// takesKinds is kinds of the core group.
func takesKinds(kinds ...string) func(workload.Ref) bool {
	return func(ref workload.Ref) bool {
		return targetindex.GroupOf(ref.APIVersion) == "" && slices.Contains(kinds, ref.Kind)
	}
}
