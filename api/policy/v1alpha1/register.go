// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// SchedulerGroupName is the group of DynamicSchedulerPolicy.
	SchedulerGroupName = "scheduler.policy.crane.io"
	// AnalysisGroupName is the group of RecommendationConfiguration.
	AnalysisGroupName = "analysis.crane.io"
)

// The groups and versions of this package. They are never assigned to.
var (
	SchedulerGroupVersion = schema.GroupVersion{Group: SchedulerGroupName, Version: "v1alpha1"}
	AnalysisGroupVersion  = schema.GroupVersion{Group: AnalysisGroupName, Version: "v1alpha1"}
)

// AddToScheme adds the file formats to a scheme. It never fails; the error fits it to runtime.SchemeBuilder.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchedulerGroupVersion, &DynamicSchedulerPolicy{})
	scheme.AddKnownTypes(AnalysisGroupVersion, &RecommendationConfiguration{})
	return nil
}
