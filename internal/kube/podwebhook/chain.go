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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"crane.io/crane/internal/component/recovery"
)

// Operation is a JSON patch operation (RFC 6902) on the JSON of the pod.
type Operation = ctrlwebhook.JSONPatchOp

// Mutator changes new pods.
type Mutator interface {
	// Name identifies the mutator in metrics and in the audit log.
	Name() string
	// Mutate returns the operations that change the pod; none leaves it unchanged. The pod has the changes of earlier mutators
	// and its namespace, perhaps no name; Mutate must not change it. Mutate uses only data in memory and does not block. It may
	// be called twice for one pod, the second time with its own changes. After an error the pod is created without the changes of
	// this mutator, and its creator gets the error as a warning.
	Mutate(pod *corev1.Pod) ([]Operation, error)
}

// Chain calls mutators in order.
type Chain struct {
	mutators []Mutator
	// skippedNamespaces are the namespaces whose pods are not changed; the manifests exclude them already.
	skippedNamespaces []string
	// Stopped reports whether all pods are created as they are; nil for never.
	Stopped func() bool
	// OptedOut reports whether a pod is created as it is because the label crane.io/opt-out excludes it; nil for never. So is a pod for
	// which it returns an error.
	OptedOut func(context.Context, *corev1.Pod) (bool, error)

	calls            *prometheus.CounterVec
	optOutReadErrors prometheus.Counter
	failureLog       logLimiter
}

// NewChain returns a chain that does not change the pods of the given namespaces: a pod that Crane itself needs must not depend
// on Crane.
func NewChain(mutators []Mutator, skippedNamespaces ...string) *Chain {
	return &Chain{
		mutators: mutators, skippedNamespaces: skippedNamespaces,
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_pod_mutations_total",
			Help: "New pods that a mutator processed, by result: changed, unchanged or failed.",
		}, []string{"mutator", "result"}),
		optOutReadErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "crane_pod_opt_out_read_failures_total",
			Help: "New pods created unchanged because the labels that may opt them out could not be read.",
		}),
		failureLog: logLimiter{clock: clock.RealClock{}},
	}
}

// Describe implements prometheus.Collector.
func (c *Chain) Describe(ch chan<- *prometheus.Desc) {
	c.calls.Describe(ch)
	c.optOutReadErrors.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *Chain) Collect(ch chan<- prometheus.Metric) {
	c.calls.Collect(ch)
	c.optOutReadErrors.Collect(ch)
}

// Handle processes a request for one new pod. It always allows the pod, because a denial would take effect under any failure
// policy.
func (c *Chain) Handle(ctx context.Context, req admission.Request) (answer admission.Response) {
	defer func() {
		if r := recover(); r != nil {
			log.FromContext(ctx).Error(fmt.Errorf("panic: %v", r), "mutating a pod; it is created unchanged")
			answer = admission.Allowed("")
		}
	}()

	// Updates, Crane's own pods and all pods while writes are stopped stay as they are.
	if req.Operation != admissionv1.Create || req.SubResource != "" || slices.Contains(c.skippedNamespaces, req.Namespace) || len(c.mutators) == 0 || c.Stopped != nil && c.Stopped() {
		return admission.Allowed("")
	}

	pod, err := decodePod(req.Object.Raw, req.Namespace)
	if err != nil {
		log.FromContext(ctx).Error(err, "decoding a pod; it is created unchanged")
		return admission.Allowed("")
	}

	if c.OptedOut != nil {
		excluded, err := c.OptedOut(ctx, pod)
		if err != nil {
			c.optOutReadErrors.Inc()
			c.logFailure(ctx, pod, "opt-out", err)
			return admission.Allowed("").WithWarnings(fmt.Sprintf("crane: the pod is created unchanged: checking its opt-out labels: %v", err))
		}

		if excluded {
			return admission.Allowed("")
		}
	}

	result := c.mutate(ctx, pod, req.Object.Raw)
	if len(result.operations) == 0 {
		return admission.Allowed("").WithWarnings(result.warnings...)
	}

	answer = admission.Patched("", result.operations...).WithWarnings(result.warnings...)
	answer.AuditAnnotations = map[string]string{"changed-by": strings.Join(result.changedBy, ",")}
	return answer
}

// logFailure logs that a step failed for a pod, once in a minute for the pods of one controller: each pod of a cluster is created through here.
func (c *Chain) logFailure(ctx context.Context, pod *corev1.Pod, step string, err error) {
	creator := pod.GenerateName + pod.Name
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		creator = owner.Kind + " " + owner.Name
	}

	if c.failureLog.allow(strings.Join([]string{step, pod.Namespace, creator}, "/")) {
		log.FromContext(ctx).Error(err, "creating a pod without the changes of a step", "step", step, "namespace", pod.Namespace, "creator", creator)
	}
}

// mutation is what the mutators of a chain do to a pod.
type mutation struct {
	operations []Operation
	// changedBy are the names of the mutators of the operations.
	changedBy []string
	// warnings describe the mutators that failed.
	warnings []string
}

// mutate calls all mutators.
func (c *Chain) mutate(ctx context.Context, pod *corev1.Pod, raw []byte) mutation {
	var out mutation
	for _, m := range c.mutators {
		operations, next, err := callMutator(ctx, m, pod, raw)
		switch {
		case err != nil:
			c.calls.WithLabelValues(m.Name(), "failed").Inc()
			c.logFailure(ctx, pod, m.Name(), err)
			out.warnings = append(out.warnings, fmt.Sprintf("crane: the pod is created without the changes of %s: %v", m.Name(), err))
			continue

		case len(operations) == 0:
			c.calls.WithLabelValues(m.Name(), "unchanged").Inc()
			continue
		}

		c.calls.WithLabelValues(m.Name(), "changed").Inc()
		out.operations = append(out.operations, operations...)
		out.changedBy = append(out.changedBy, m.Name())

		raw = next
		if pod, err = decodePod(raw, pod.Namespace); err != nil {
			return out // callMutator has decoded it already.
		}
	}

	return out
}

// callMutator calls one mutator and applies its operations to a copy. A panic is an error without its value, because the error becomes a
// warning for whoever creates the pod.
func callMutator(ctx context.Context, m Mutator, pod *corev1.Pod, raw []byte) (operations []Operation, next []byte, err error) {
	err = recovery.Call(ctx, func() error {
		var err error
		operations, next, err = applyMutator(m, pod, raw)

		return err
	})

	return operations, next, err
}

func applyMutator(m Mutator, pod *corev1.Pod, raw []byte) (operations []Operation, next []byte, err error) {
	operations, err = m.Mutate(pod.DeepCopy())
	if err != nil || len(operations) == 0 {
		return nil, nil, err
	}

	// The patch is applied here first: the API server would reject the pod because of a patch that does not fit.
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding its patch: %w", err)
	}

	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, nil, fmt.Errorf("it is not a patch: %w", err)
	}

	next, err = patch.Apply(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("its patch does not fit the pod: %w", err)
	}

	_, err = decodePod(next, pod.Namespace)
	if err != nil {
		return nil, nil, fmt.Errorf("the patched object is not a pod: %w", err)
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
