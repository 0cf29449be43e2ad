// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"fmt"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	disruption "crane.io/crane/internal/kube/eviction"
	"crane.io/crane/pkg/qos"
)

// Result is the result of an eviction.
type Result string

// Results.
const (
	// Evicted: the pod is terminating.
	Evicted Result = "evicted"
	// Gone: the pod no longer exists, or another one has its name.
	Gone Result = "gone"
	// Refused: the pod may not be evicted now, as by a disruption budget; another pod may be evicted in its place.
	Refused Result = "refused"
	// Withheld: the cluster's budget is used up; no other pod is evicted.
	Withheld Result = "withheld"
	// Failed: the API server did not answer or rejected the request for reasons unrelated to the pod; no other pod is evicted.
	Failed Result = "failed"
)

// EvictionOutcome is an eviction and its result.
type EvictionOutcome struct {
	Eviction qos.Eviction
	Result   Result
	At       time.Time
	// Reason is the API server's message; empty if evicted.
	Reason string
	// Pause is how long no pod of this node is evicted; 0 for none.
	Pause time.Duration
}

// Record records the outcome of an eviction begun with BeginEviction.
func (o EvictionOutcome) Record(s *qos.State) {
	switch o.Result {
	case Evicted:
		s.RecordEviction(o.Eviction.Pod, o.At, o.Eviction.GracePeriod)
	case Gone:
		s.RecordGone(o.Eviction.Pod, o.At)
	case Refused:
		s.RecordRefusal(o.Eviction.Pod, o.At)
	default:
		s.RecordFailure(o.Eviction.Pod)
	}
	if o.Pause > 0 {
		s.PauseEvictions(o.At, o.Pause, fmt.Sprintf("no pod is evicted for %s: %s", o.Pause.Round(100*time.Millisecond), o.Reason))
	}
}

// EvictionClient requests evictions from an API server.
type EvictionClient interface {
	Evict(ctx context.Context, eviction *policyv1.Eviction) error
}

// APIEvictionClient uses the eviction subresource of policy/v1, which respects disruption budgets. It does not retry: the next measurement
// decides again.
type APIEvictionClient struct{ Client kubernetes.Interface }

// Evict implements EvictionClient.
func (a APIEvictionClient) Evict(ctx context.Context, eviction *policyv1.Eviction) error {
	return a.Client.CoreV1().RESTClient().Post().Namespace(eviction.Namespace).Resource("pods").Name(eviction.Name).SubResource("eviction").
		MaxRetries(0).Body(eviction).Do(ctx).Error()
}

// newEviction returns an eviction of exactly this pod: a pod of the same name, as of a StatefulSet, has another UID.
func newEviction(e qos.Eviction) *policyv1.Eviction {
	uid := types.UID(e.Pod.UID)
	out := &policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: e.Pod.Namespace, Name: e.Pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	}
	if e.GraceOverride != nil {
		out.DeleteOptions.GracePeriodSeconds = new(int64(e.GraceOverride.Seconds()))
	}
	return out
}

// classifyAnswer interprets an answer. again reports that evictions should pause, open that the pod may be terminating despite an error.
func classifyAnswer(err error) (result Result, why string, again, open bool) {
	if why, kept := disruption.BlockedByPDB(err); kept {
		return Refused, why, false, false
	}
	switch {
	case err == nil:
		return Evicted, "", false, true
	case apierrors.IsNotFound(err):
		return Gone, err.Error(), false, false
	case apierrors.IsConflict(err) && isUIDMismatch(err):
		return Gone, "another pod has its name: " + err.Error(), false, false
	case apierrors.IsConflict(err):
		return Failed, "it was changed at the same time: " + err.Error(), true, false
	case apierrors.IsTooManyRequests(err), apierrors.IsUnauthorized(err):
		return Failed, "the API server rejected the request: " + err.Error(), true, false
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), missingRight):
		// Unrelated to the pod. A starting API server returns this for roles it has not loaded yet.
		return Failed, "it is not allowed: " + err.Error(), true, false
	case disruption.OutcomeUnknown(err):
		return Failed, "the API server has not answered: " + err.Error(), true, true
	}
	// A statement about this pod, as from a webhook.
	return Refused, err.Error(), true, false
}

// missingRight is part of the authorizer's message for missing permissions, unlike those of admission.
const missingRight = "cannot create resource"

// isUIDMismatch reports whether the API server or its store found another pod of the same name.
func isUIDMismatch(err error) bool {
	return strings.Contains(err.Error(), "UID in the precondition") || strings.Contains(err.Error(), "UID in precondition")
}
