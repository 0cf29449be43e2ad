// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"crane.io/crane/internal/kube/optout"
)

// extraNodeName is the key under which the API server reports the node of the pod that a token is bound to.
const extraNodeName = "authentication.kubernetes.io/node-name"

// EvictionGuard permits evictions by agents: of pods of their own node that have not opted out. RBAC and admission policies cannot see the
// node of an evicted pod.
type EvictionGuard struct {
	// Pods reads pods.
	Pods client.Reader
	// OptOuts reads the namespaces and workloads that have opted out.
	OptOuts func(context.Context) (optout.Set, error)
}

// Handle implements admission.Handler. A token that names no node is not bound to an agent's pod, and is not restricted to a node.
func (g EvictionGuard) Handle(ctx context.Context, req admission.Request) admission.Response {
	var pod corev1.Pod
	err := g.Pods.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: req.Name}, &pod)
	if apierrors.IsNotFound(err) {
		return admission.Allowed("") // The API server answers that it is gone.
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("reading pod %s/%s: %w", req.Namespace, req.Name, err))
	}

	if node := req.UserInfo.Extra[extraNodeName]; len(node) > 0 && (len(node) > 1 || pod.Spec.NodeName != node[0]) {
		return admission.Denied("crane-agent evicts pods of its own node only")
	}

	excluded, err := g.OptOuts(ctx)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("reading opt-outs: %w", err))
	}

	if excluded.Excludes(&pod) {
		return admission.Denied("crane-agent does not evict the pod: " + optout.Reason)
	}

	return admission.Allowed("")
}
