// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Operation is one of RFC 6902, with a path into the JSON of the pod.
type Operation = ctrlwebhook.JSONPatchOp

// Mutator adds something to new pods.
type Mutator interface {
	// Name tells in metrics and in the audit log who it was.
	Name() string
	// Mutate returns what turns the pod into what it should be; nothing leaves it alone. The pod is as the mutators before left it,
	// its namespace is set, its name may not be; it must not be changed. Mutate asks nobody and waits for nothing: what it needs of
	// the cluster it has in memory. It may be called twice for one pod, the second time with what it added the first time. An error
	// leaves the pod without what this mutator would have added.
	Mutate(pod *corev1.Pod) ([]Operation, error)
}

// Chain asks mutators in their order.
type Chain struct {
	mutators []Mutator
	// skippedNamespaces are the namespaces whose pods are let through; the manifests spare them already.
	skippedNamespaces []string

	calls *prometheus.CounterVec
}

// NewChain returns a chain. It spares the namespaces given: a pod that Crane itself needs must not depend on Crane.
func NewChain(mutators []Mutator, spared ...string) *Chain {
	return &Chain{
		mutators: mutators, skippedNamespaces: spared,
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_pod_mutations_total",
			Help: "New pods that a mutator was asked about, by what it did: changed, unchanged or failed.",
		}, []string{"mutator", "result"}),
	}
}

// Describe implements prometheus.Collector.
func (c *Chain) Describe(ch chan<- *prometheus.Desc) { c.calls.Describe(ch) }

// Collect implements prometheus.Collector.
func (c *Chain) Collect(ch chan<- prometheus.Metric) { c.calls.Collect(ch) }

// Handle answers for one new pod. The answer is always yes: a no would be a refusal, which no failure policy turns into a yes.
func (c *Chain) Handle(ctx context.Context, req admission.Request) (answer admission.Response) {
	defer func() {
		if r := recover(); r != nil {
			log.FromContext(ctx).Info("Looking at a pod failed; it is created as it is", "reason", fmt.Sprint(r))
			answer = admission.Allowed("")
		}
	}()
	if req.Operation != admissionv1.Create || req.SubResource != "" || slices.Contains(c.skippedNamespaces, req.Namespace) || len(c.mutators) == 0 {
		return admission.Allowed("")
	}
	pod, err := decodePod(req.Object.Raw, req.Namespace)
	if err != nil {
		log.FromContext(ctx).Info("A pod cannot be read; it is created as it is", "reason", err.Error())
		return admission.Allowed("")
	}
	operations, by := c.mutate(ctx, pod, req.Object.Raw)
	if len(operations) == 0 {
		return admission.Allowed("")
	}
	answer = admission.Patched("", operations...)
	answer.AuditAnnotations = map[string]string{"changed-by": strings.Join(by, ",")}
	return answer
}

// mutate returns the operations of all mutators, and who had some.
func (c *Chain) mutate(ctx context.Context, pod *corev1.Pod, raw []byte) (all []Operation, by []string) {
	for _, m := range c.mutators {
		operations, next, err := callMutator(m, pod, raw)
		switch {
		case err != nil:
			log.FromContext(ctx).Info("A mutator of pods failed; its part is left out", "mutator", m.Name(), "reason", err.Error())
			c.calls.WithLabelValues(m.Name(), "failed").Inc()
			continue
		case len(operations) == 0:
			c.calls.WithLabelValues(m.Name(), "unchanged").Inc()
			continue
		}
		c.calls.WithLabelValues(m.Name(), "changed").Inc()
		all, by, raw = append(all, operations...), append(by, m.Name()), next
		if pod, err = decodePod(raw, pod.Namespace); err != nil {
			return all, by // ask has read it already.
		}
	}
	return all, by
}

// callMutator asks one mutator and tries what it answers; a panic is an error.
func callMutator(m Mutator, pod *corev1.Pod, raw []byte) (operations []Operation, next []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			operations, next, err = nil, nil, fmt.Errorf("panic: %v", r)
		}
	}()
	if operations, err = m.Mutate(pod.DeepCopy()); err != nil || len(operations) == 0 {
		return nil, nil, err
	}
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding its patch: %w", err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, nil, fmt.Errorf("its patch is none: %w", err)
	}
	if next, err = patch.Apply(raw); err != nil {
		return nil, nil, fmt.Errorf("its patch does not fit the pod: %w", err)
	}
	if _, err = decodePod(next, pod.Namespace); err != nil {
		return nil, nil, fmt.Errorf("with its patch the pod is none: %w", err)
	}
	return operations, next, nil
}

func decodePod(raw []byte, namespace string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(raw, pod); err != nil {
		return nil, fmt.Errorf("reading a pod: %w", err)
	}
	if pod.Namespace == "" {
		pod.Namespace = namespace
	}
	return pod, nil
}
