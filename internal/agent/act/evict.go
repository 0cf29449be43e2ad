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

// Result is what became of an eviction.
type Result string

// The results.
const (
	// Evicted is a pod that is ending.
	Evicted Result = "evicted"
	// Gone is one that was no more, or is another one of the same name.
	Gone Result = "gone"
	// Refused is one that may not go now, as by a disruption budget: another one may go in its place.
	Refused Result = "refused"
	// Withheld is one for which the cluster has no budget now: nobody goes in its place.
	Withheld Result = "withheld"
	// Failed is one of which the API server could not be asked, or has not said what it does: nobody goes in its place.
	Failed Result = "failed"
)

// EvictionOutcome is an eviction and what became of it.
type EvictionOutcome struct {
	Eviction qos.Eviction
	Result   Result
	At       time.Time
	// Reason is what the API server says; empty for one that is evicted.
	Reason string
	// Pause is how long nobody is evicted on this node; 0 for not at all.
	Pause time.Duration
}

// Record tells the state what became of an eviction that it was told to be Asked.
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
		s.PauseEvictions(o.At, o.Pause, fmt.Sprintf("nobody is evicted for %s: %s", o.Pause.Round(100*time.Millisecond), o.Reason))
	}
}

// EvictionClient asks an API server to evict a pod.
type EvictionClient interface {
	Evict(ctx context.Context, eviction *policyv1.Eviction) error
}

// APIEvictionClient asks by the subresource eviction of policy/v1, which holds disruption budgets. It does not try again by itself: what is
// tight now may not be when an answer comes, and the next measurement decides anew.
type APIEvictionClient struct{ Client kubernetes.Interface }

// Evict implements EvictionClient.
func (a APIEvictionClient) Evict(ctx context.Context, eviction *policyv1.Eviction) error {
	return a.Client.CoreV1().RESTClient().Post().Namespace(eviction.Namespace).Resource("pods").Name(eviction.Name).SubResource("eviction").
		MaxRetries(0).Body(eviction).Do(ctx).Error()
}

// newEviction is the eviction of exactly that pod: another of its name, as of a StatefulSet, has another UID.
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

// classifyAnswer says what an answer means. again tells that nobody should be evicted for a while, open that the pod may be ending all the same.
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
		return Gone, "it is another pod by now: " + err.Error(), false, false
	case apierrors.IsConflict(err):
		return Failed, "somebody else has changed it in the same moment: " + err.Error(), true, false
	case apierrors.IsTooManyRequests(err), apierrors.IsUnauthorized(err):
		return Failed, "the API server has not listened: " + err.Error(), true, false
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), missingRight):
		// Of no pod in particular. An API server that has just started says so of rights that it has not read yet.
		return Failed, "it is not allowed: " + err.Error(), true, false
	case disruption.OutcomeUnknown(err):
		return Failed, "the API server has not answered: " + err.Error(), true, true
	}
	// What it says of this pod, such as a webhook's no.
	return Refused, err.Error(), true, false
}

// missingRight is in what an API server's authorizer says of rights that are missing; admission refuses in other words.
const missingRight = "cannot create resource"

// isUIDMismatch tells whether an API server, or its store, says that a pod is not the one that was meant.
func isUIDMismatch(err error) bool {
	return strings.Contains(err.Error(), "UID in the precondition") || strings.Contains(err.Error(), "UID in precondition")
}
