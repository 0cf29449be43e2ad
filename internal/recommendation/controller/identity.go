// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// hashLength is the number of hex digits, 40 bits, that distinguish shortened names.
const hashLength = 10

// identity is the target and the recommender of a Recommendation. The API version is left out, since one object is served
// under several versions.
type identity struct {
	group, kind, namespace, name string
	recommender                  string
}

func (id identity) compare(other identity) int {
	return cmp.Or(
		cmp.Compare(id.namespace, other.namespace), cmp.Compare(id.kind, other.kind), cmp.Compare(id.name, other.name),
		cmp.Compare(id.group, other.group), cmp.Compare(id.recommender, other.recommender),
	)
}

func identityOf(ref workload.Ref, recommender string) identity {
	return identity{
		group:       workload.GroupOf(ref.APIVersion, ref.Kind),
		kind:        ref.Kind,
		namespace:   ref.Namespace,
		name:        ref.Name,
		recommender: recommender,
	}
}

func identityOfObject(rec *analysisv1alpha1.Recommendation) identity {
	t := rec.Spec.TargetRef
	return identity{
		group:       workload.GroupOf(t.APIVersion, t.Kind),
		kind:        t.Kind,
		namespace:   t.Namespace,
		name:        t.Name,
		recommender: string(rec.Spec.Type),
	}
}

// objectName returns the name of the target, the recommender and a hash, as in checkout-resource-0123456789. It depends on rule,
// recommender and target alone, so that two instances of craned, or one after a crash, use the same object. Recommendations with
// other names, which gocrane or an earlier version created, are found by their labels and keep their names.
func objectName(rule string, id identity) string {
	suffix := "-" + strings.ToLower(id.recommender) + "-" + hash(rule, id.recommender, id.group, id.kind, id.namespace, id.name)
	target := id.name
	if room := validation.DNS1123SubdomainMaxLength - len(suffix); len(target) > room {
		target = target[:room]
	}

	return strings.TrimRight(target, "-.") + suffix
}

// labelsOf returns the labels of a Recommendation: those of its target, as in gocrane, overridden by Crane's own.
func labelsOf(rule *analysisv1alpha1.RecommendationRule, w workload.Workload, recommender string) map[string]string {
	labels := maps.Clone(w.Labels)
	if labels == nil {
		labels = map[string]string{}
	}

	gv, err := schema.ParseGroupVersion(w.APIVersion)
	if err != nil {
		gv.Version = w.APIVersion
	}

	for key, value := range map[string]string{
		analysisv1alpha1.LabelRuleName:        rule.Name,
		analysisv1alpha1.LabelRuleUID:         string(rule.UID),
		analysisv1alpha1.LabelRuleRecommender: recommender,
		analysisv1alpha1.LabelTargetKind:      w.Kind,
		analysisv1alpha1.LabelTargetVersion:   gv.Version,
		analysisv1alpha1.LabelTargetNamespace: w.Namespace,
		analysisv1alpha1.LabelTargetName:      w.Name,
	} {
		labels[key] = labelValue(value)
	}

	// The labels of the target must not make a Recommendation belong to an Analytics.
	for _, key := range []string{analysisv1alpha1.LabelAnalyticsName, analysisv1alpha1.LabelAnalyticsUID, analysisv1alpha1.LabelAnalyticsType} {
		delete(labels, key)
		if value, ofAnalytics := rule.Labels[key]; ofAnalytics {
			labels[key] = value
		}
	}

	return labels
}

// labelValue shortens a value that is too long for a label and appends a hash.
func labelValue(s string) string {
	if len(s) <= validation.LabelValueMaxLength {
		return s
	}

	const room = validation.LabelValueMaxLength - hashLength - 1
	return strings.TrimRight(s[:room], "-._") + "-" + hash(s)
}

func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}

	return hex.EncodeToString(h.Sum(nil))[:hashLength]
}

func targetRef(w workload.Workload) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: w.APIVersion,
		Kind:       w.Kind,
		Namespace:  w.Namespace,
		Name:       w.Name,
		UID:        w.UID,
	}
}

// sameReference reports whether two references name the same object by the same API version.
func sameReference(a, b corev1.ObjectReference) bool {
	a.ResourceVersion = ""
	a.FieldPath = ""
	b.ResourceVersion = ""
	b.FieldPath = ""

	return a == b
}
