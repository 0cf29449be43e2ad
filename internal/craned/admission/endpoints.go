// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/craned/admission/validation"
	"crane.io/crane/internal/kube/podwebhook"
)

// Endpoint is one webhook: the kind that it handles and its path.
type Endpoint struct {
	Path    string
	Kind    schema.GroupVersionKind
	Mutates bool

	webhook *admission.Webhook
}

// Endpoints returns all endpoints. The manifests in config/webhook have the same.
func Endpoints(actions CachedFacts, chain *podwebhook.Chain, evictions EvictionGuard) ([]Endpoint, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}

	facts := actions // Only rules and pods refer to actions; the other kinds do not wait for a cache that starts.
	facts.Cache = nil
	analysis := analysisv1alpha1.GroupVersion.WithKind
	prediction := predictionv1alpha1.GroupVersion.WithKind
	autoscaling := autoscalingv1alpha1.GroupVersion.WithKind
	ensurance := ensurancev1alpha1.GroupVersion.WithKind
	pod := corev1.SchemeGroupVersion.WithKind("Pod")
	eviction := policyv1.SchemeGroupVersion.WithKind("Eviction")

	return []Endpoint{
		newValidatingEndpoint(scheme, analysis("RecommendationRule"), facts, validation.ValidateRecommendationRule),
		newValidatingEndpoint(scheme, analysis("Recommendation"), facts, validation.ValidateRecommendation),
		newValidatingEndpoint(scheme, analysis("Analytics"), facts, validation.ValidateAnalytics),
		newValidatingEndpoint(scheme, analysis("ConfigSet"), facts, validation.ValidateConfigSet),
		newValidatingEndpoint(scheme, prediction("TimeSeriesPrediction"), facts, validation.ValidateTimeSeriesPrediction),
		newValidatingEndpoint(scheme, prediction("ClusterNodePrediction"), facts, validation.ValidateClusterNodePrediction),
		newValidatingEndpoint(scheme, autoscaling("EffectiveHorizontalPodAutoscaler"), facts, validation.ValidateEffectiveHorizontalPodAutoscaler),
		newValidatingEndpoint(scheme, autoscaling("EffectiveVerticalPodAutoscaler"), facts, validation.ValidateEffectiveVerticalPodAutoscaler),
		newValidatingEndpoint(scheme, ensurance("NodeQOS"), actions, validation.ValidateNodeQOS),
		newValidatingEndpoint(scheme, ensurance("PodQOS"), actions, validation.ValidatePodQOS),
		newValidatingEndpoint(scheme, ensurance("AvoidanceAction"), facts, validation.ValidateAvoidanceAction),
		newValidatingEndpoint(scheme, topologyv1alpha1.GroupVersion.WithKind("NodeResourceTopology"), facts, validation.ValidateNodeResourceTopology),
		{Path: webhookPath("validate", eviction), Kind: eviction, webhook: &admission.Webhook{Handler: evictions}},

		newDefaultingEndpoint(scheme, analysis("Recommendation"), validation.DefaultRecommendation),
		newDefaultingEndpoint(scheme, analysis("Analytics"), validation.DefaultAnalytics),
		newDefaultingEndpoint(scheme, prediction("TimeSeriesPrediction"), validation.DefaultTimeSeriesPrediction),
		newDefaultingEndpoint(scheme, autoscaling("EffectiveHorizontalPodAutoscaler"), validation.DefaultEffectiveHorizontalPodAutoscaler),
		newDefaultingEndpoint(scheme, autoscaling("EffectiveVerticalPodAutoscaler"), validation.DefaultEffectiveVerticalPodAutoscaler),
		{Path: webhookPath("mutate", pod), Kind: pod, Mutates: true, webhook: &admission.Webhook{Handler: chain}},
	}, nil
}

// webhookPath returns the path that gocrane and controller-runtime use: /validate-<group>-<version>-<kind>, with dashes for dots.
func webhookPath(verb string, kind schema.GroupVersionKind) string {
	return "/" + verb + "-" + strings.ReplaceAll(kind.Group, ".", "-") + "-" + kind.Version + "-" + strings.ToLower(kind.Kind)
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme, predictionv1alpha1.AddToScheme,
		ensurancev1alpha1.AddToScheme, topologyv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme of webhooks: %w", err)
		}
	}

	return scheme, nil
}
