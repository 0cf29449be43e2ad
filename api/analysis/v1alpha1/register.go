// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of this package.
const GroupName = "analysis.crane.io"

// GroupVersion is the group and version of this package. It is never assigned to.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// AddToScheme adds the kinds of this package to a scheme. It never fails; the error fits it to runtime.SchemeBuilder.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Recommendation{}, &RecommendationList{},
		&RecommendationRule{}, &RecommendationRuleList{},
		&Analytics{}, &AnalyticsList{},
		&ConfigSet{}, &ConfigSetList{},
	)

	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
