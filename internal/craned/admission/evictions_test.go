// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"crane.io/crane/internal/kube/optout"
)

// TestEvictionGuard checks that an agent evicts pods of its own node that have not opted out, and none while that is unknown.
func TestEvictionGuard(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		pod, node       string
		podErr, listErr error
		want            bool
	}{
		"own":                       {pod: "own", node: "n1", want: true},
		"another node's":            {pod: "foreign", node: "n1"},
		"not placed":                {pod: "pending", node: "n1"},
		"gone":                      {pod: "gone", node: "n1", want: true},
		"opted out":                 {pod: "quiet", node: "n1"},
		"token without a node":      {pod: "foreign", want: true},
		"opted out, without a node": {pod: "quiet"},
		"pods cannot be read":       {pod: "own", node: "n1", podErr: broken},
		"opt-outs cannot be read":   {pod: "own", node: "n1", listErr: broken},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			for pod, node := range map[string]string{"own": "n1", "foreign": "n2", "pending": "", "quiet": "n1"} {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: pod}, Spec: corev1.PodSpec{NodeName: node}}
				if pod == "quiet" {
					p.Labels = map[string]string{"crane.io/opt-out": "true"}
				}

				objects = append(objects, p)
			}

			pods := fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if test.podErr != nil {
						return test.podErr
					}

					return c.Get(ctx, key, o, opts...)
				},
			}).Build()

			guard := EvictionGuard{Pods: pods, OptOuts: func(context.Context) (optout.Set, error) { return nil, test.listErr }}
			req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "shop", Name: test.pod}}
			if test.node != "" {
				req.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {test.node}}
			}
			if got := guard.Handle(t.Context(), req); got.Allowed != test.want {
				t.Errorf("Handle: allowed %t, want %t: %+v", got.Allowed, test.want, got.Result)
			}
		})
	}
}
