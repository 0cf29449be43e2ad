// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// TestCranedConfigMaps checks that craned's token creates its own records and no other ConfigMap: neither the switch that stops all writes nor the
// template of the predictions of nodes.
func TestCranedConfigMaps(t *testing.T) {
	craned := newCraned(t)
	const policy = "crane-craned-configmaps"
	named := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: name}, Data: map[string]string{"paused": "true"}}
	}

	for _, name := range []string{"crane-pause", "noderesource-tsp-template", "crane-scheduler", "kube-root-ca.crt-2", "oom-record-2"} {
		awaitRefused(t, policy, func(ctx context.Context) error { return craned.Create(ctx, named(name), client.DryRunAll) })
	}

	awaitRefused(t, policy, func(ctx context.Context) error {
		generated := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", GenerateName: "oom-record"}}
		return craned.Create(ctx, generated, client.DryRunAll)
	})

	for _, name := range []string{"oom-record", "oom-record-unreadable", "crane-savings", "crane-opt-outs"} {
		if err := craned.Create(t.Context(), named(name), client.DryRunAll); err != nil {
			t.Errorf("Create of ConfigMap %s by craned: %v, want no error", name, err)
		}
	}
}

// TestCranedRules checks that craned's token writes the rules that it makes of Analytics, for the namespace of the Analytics, and no rule of a user.
func TestCranedRules(t *testing.T) {
	craned := newCraned(t)
	const policy = "crane-craned-rules"
	rule := func(name, uid string, selector analysisv1alpha1.NamespaceSelector) *analysisv1alpha1.RecommendationRule {
		out := &analysisv1alpha1.RecommendationRule{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: analysisv1alpha1.RecommendationRuleSpec{
				ResourceSelectors: []analysisv1alpha1.ResourceSelector{{Kind: "Deployment", APIVersion: "apps/v1"}},
				NamespaceSelector: selector,
				RunInterval:       "4h",
				Recommenders:      []analysisv1alpha1.Recommender{{Name: "Resource"}},
			},
		}
		if uid != "" {
			out.Annotations = map[string]string{analysisv1alpha1.AnnotationAnalyticsConversion: uid}
		}

		return out
	}

	shop := analysisv1alpha1.NamespaceSelector{MatchNames: []string{"shop"}}
	all := analysisv1alpha1.NamespaceSelector{Any: true}
	for name, r := range map[string]*analysisv1alpha1.RecommendationRule{
		"without an Analytics":     rule("shop-web-0123456789", "", shop),
		"of all namespaces":        rule("shop-web-0123456789", "u", all),
		"of another namespace":     rule("shop-web-0123456789", "u", analysisv1alpha1.NamespaceSelector{MatchNames: []string{"pay"}}),
		"of one more namespace":    rule("shop-web-0123456789", "u", analysisv1alpha1.NamespaceSelector{MatchNames: []string{"shop", "pay"}}),
		"of a namespace in a name": rule("shopping-web-0123456789", "u", shop),
	} {
		t.Run(name, func(t *testing.T) {
			awaitRefused(t, policy, func(ctx context.Context) error { return craned.Create(ctx, r.DeepCopy(), client.DryRunAll) })
		})
	}

	for name, r := range map[string]*analysisv1alpha1.RecommendationRule{
		"of a tenant":            rule("shop-web-0123456789", "u", shop),
		"of the administrator":   rule("crane-system-web-0123456789", "u", all),
		"of a shortened name":    rule("a23456789-b23456789-c23456789-d23456789-e23456789-f2-0123456789", "u", analysisv1alpha1.NamespaceSelector{MatchNames: []string{"a23456789-b23456789-c23456789-d23456789-e23456789-f234567"}}),
		"of a long name of kind": rule("a23456789-b23456789-c23456789-d23456789-e23456789-f2-0123456789", "u", analysisv1alpha1.NamespaceSelector{MatchNames: []string{"a23456789-b23456789-c23456789-d23456789-e23456789-f2"}}),
	} {
		if err := craned.Create(t.Context(), r, client.DryRunAll); err != nil {
			t.Errorf("Create of a rule %s by craned: %v, want no error", name, err)
		}
	}

	users := rule("users-rule", "", all)
	createClusterScoped(t, users)
	own := rule("shop-own-0123456789", "u", shop)
	createClusterScoped(t, own)

	awaitRefused(t, policy, func(ctx context.Context) error { return craned.Delete(ctx, users.DeepCopy(), client.DryRunAll) })
	for name, change := range map[string]func(*analysisv1alpha1.RecommendationRule){
		"interval": func(r *analysisv1alpha1.RecommendationRule) { r.Spec.RunInterval = "1m" },
		"taken over": func(r *analysisv1alpha1.RecommendationRule) {
			r.Annotations = map[string]string{analysisv1alpha1.AnnotationAnalyticsConversion: "u"}
			r.Spec.NamespaceSelector = shop
		},
	} {
		changed := users.DeepCopy()
		change(changed)
		if err := checkRefused(craned.Patch(t.Context(), changed, client.MergeFrom(users), client.DryRunAll), policy); err != nil {
			t.Errorf("Patch of a user's rule (%s) by craned: %v", name, err)
		}
	}

	changed := own.DeepCopy()
	changed.Spec.RunInterval = "8h"
	if err := craned.Patch(t.Context(), changed, client.MergeFrom(own), client.DryRunAll); err != nil {
		t.Errorf("Patch of craned's rule by craned: %v, want no error", err)
	}
	if err := craned.Delete(t.Context(), own.DeepCopy(), client.DryRunAll); err != nil {
		t.Errorf("Delete of craned's rule by craned: %v, want no error", err)
	}
}

// TestCreatedCertificates checks that a component creates the Secret of its certificate, with the keys of one, and no other certificate.
func TestCreatedCertificates(t *testing.T) {
	for account, c := range map[string]struct{ policy, name string }{
		"craned":         {"crane-craned-secrets", "craned-certificates"},
		"metric-adapter": {"crane-metric-adapter-secrets", "metric-adapter-certificate"},
	} {
		t.Run(account, func(t *testing.T) {
			own := newAccount(t, account)
			secret := func(name string, keys ...string) *corev1.Secret {
				out := &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: name},
					Type:       corev1.SecretTypeTLS,
					Data:       map[string][]byte{corev1.TLSCertKey: []byte("c"), corev1.TLSPrivateKeyKey: []byte("k")},
				}
				for _, key := range keys {
					out.Data[key] = []byte("x")
				}

				return out
			}

			for _, s := range []*corev1.Secret{
				secret("crane-dashboard-tls"), secret("prometheus-token"), secret(c.name, "token"), secret(c.name, "headers", "ca.crt"),
			} {
				awaitRefused(t, c.policy, func(ctx context.Context) error { return own.Create(ctx, s.DeepCopy(), client.DryRunAll) })
			}

			if err := own.Create(t.Context(), secret(c.name, "ca.crt", "ca.key"), client.DryRunAll); err != nil {
				t.Errorf("Create of Secret %s by %s: %v, want no error", c.name, account, err)
			}
		})
	}
}
