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
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/kube/workload"
)

// hashLength is how many hex digits tell apart what a cut name does not: 40 bits.
const hashLength = 10

// identity is what a Recommendation is for: a target and a recommender. The version of the target's API is no part of
// it, since one object is served under several.
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
		group: groupOf(ref.APIVersion), kind: ref.Kind, namespace: ref.Namespace, name: ref.Name, recommender: recommender,
	}
}

func identityOfObject(rec *analysisv1alpha1.Recommendation) identity {
	t := rec.Spec.TargetRef
	return identity{
		group: groupOf(t.APIVersion), kind: t.Kind, namespace: t.Namespace, name: t.Name, recommender: string(rec.Spec.Type),
	}
}

func groupOf(apiVersion string) string { return targetindex.GroupOf(apiVersion) }

// objectName follows from rule, recommender and target alone, so that two craneds that act at once, or one that acts
// again after a crash, mean the same object.
func objectName(rule string, id identity) string {
	sum := hash(rule, id.recommender, id.group, id.kind, id.namespace, id.name)
	prefix := rule + "-" + strings.ToLower(id.recommender)
	const room = validation.DNS1123SubdomainMaxLength - hashLength - 1
	if len(prefix) > room {
		prefix = prefix[:room]
	}
	return strings.TrimRight(prefix, "-.") + "-" + sum
}

// labelsOf are the labels of a Recommendation: those of its target, as gocrane copied them, and Crane's own, which
// win.
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
	for _, key := range []string{analysisv1alpha1.LabelAnalyticsName, analysisv1alpha1.LabelAnalyticsUID, analysisv1alpha1.LabelAnalyticsType} {
		delete(labels, key)
		if value, ofAnalytics := rule.Labels[key]; ofAnalytics {
			labels[key] = value
		}
	}
	return labels
}

// labelValue cuts what is too long for a label and ends it in a hash, so that two long names stay apart.
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
		APIVersion: w.APIVersion, Kind: w.Kind, Namespace: w.Namespace, Name: w.Name, UID: w.UID,
	}
}

// sameReference reports whether two references name the same object by the same API version.
func sameReference(a, b corev1.ObjectReference) bool {
	a.ResourceVersion, a.FieldPath, b.ResourceVersion, b.FieldPath = "", "", "", ""
	return a == b
}
