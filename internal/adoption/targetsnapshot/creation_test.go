// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"crane.io/crane/pkg/adoption"
)

// newEvent returns an event about an owner that could not create a pod.
func newEvent(name, owner string, first, last time.Time, message string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(first)},
		InvolvedObject: corev1.ObjectReference{UID: types.UID("uid-" + owner)},
		Reason:         "FailedCreate", Message: message, LastTimestamp: metav1.NewTime(last),
	}
}

// newEventReader returns a client that selects events by the fields that the API server supports.
func newEventReader(events ...client.Object) client.Client {
	return withEventFields(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(events...)).Build()
}

func withEventFields(b *fake.ClientBuilder) *fake.ClientBuilder {
	return b.
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).
		WithIndex(&corev1.Event{}, "involvedObject.kind", func(o client.Object) []string { return []string{o.(*corev1.Event).InvolvedObject.Kind} }).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} })
}

// TestReadCreation_RefusedAgain: the condition of a Deployment keeps the time and the message of the first refusal, so that later ones are known
// from the events of its ReplicaSets alone.
func TestReadCreation_RefusedAgain(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := at.Add(time.Hour)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-d"}, Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "denied", LastTransitionTime: metav1.NewTime(at),
	}}}}

	again := newEvent("a", "r", at, later, "exceeded quota: team, requested: cpu=1")
	again.InvolvedObject.Kind = "ReplicaSet"
	foreign := newEvent("b", "y", at, later.Add(time.Hour), "of another owner")
	foreign.InvolvedObject.Kind = "ReplicaSet"

	in := adoption.Input{}
	s := &TargetSnapshot{Object: d, podOwners: map[types.UID]bool{"uid-d": true, "uid-r": true}}
	if err := (SnapshotReader{Live: newEventReader(again, foreign)}).readCreation(t.Context(), s, &in); err != nil {
		t.Fatal(err)
	}

	if got := in.Creation; !got.RefusedAt.Equal(later) || got.Message != again.Message || !got.ByQuota {
		t.Errorf("readCreation = %+v, want the event of its ReplicaSet at %s: %s", got, later, again.Message)
	}
}

// TestReadCreation_LongMessage: the answer that the state keeps has a bounded length.
func TestReadCreation_LongMessage(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: strings.Repeat("denied\n", 1<<16), LastTransitionTime: metav1.NewTime(at),
	}}}}

	in := adoption.Input{}
	if err := (SnapshotReader{Live: newEventReader()}).readCreation(t.Context(), &TargetSnapshot{Object: d}, &in); err != nil {
		t.Fatal(err)
	}
	if got := in.Creation.Message; len(got) > 1024 || !strings.HasPrefix(got, "denied; denied") {
		t.Errorf("readCreation: message of %d bytes, %.20q, want the first 1024 on one line", len(got), got)
	}
}

// TestReadCreation checks for each kind whether pods are missing, and when and why the creation of one was refused.
func TestReadCreation(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := at.Add(time.Minute)
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-x"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	failed := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "denied", LastTransitionTime: metav1.NewTime(at),
	}
	event := newEvent("a", "x", at, later, "exceeded quota: team, requested: cpu=1")
	foreign := newEvent("b", "y", at, later.Add(time.Hour), "of another owner")

	for name, c := range map[string]struct {
		object client.Object
		pods   int
		want   adoption.Creation
		lacks  bool
	}{
		"Deployment, all": {
			&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: selector}, Status: appsv1.DeploymentStatus{Replicas: 2}},
			2,
			adoption.Creation{},
			false,
		},
		"Deployment, one missing": {
			&appsv1.Deployment{
				ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: selector},
				Status: appsv1.DeploymentStatus{Replicas: 1, Conditions: []appsv1.DeploymentCondition{failed}},
			}, 1, adoption.Creation{Missing: 1, RefusedAt: at, Message: "denied"}, true,
		},
		"Deployment, stuck roll-out": {
			&appsv1.Deployment{
				ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: selector},
				Status: appsv1.DeploymentStatus{Replicas: 2, Conditions: []appsv1.DeploymentCondition{failed}},
			}, 2, adoption.Creation{Missing: 1, RefusedAt: at, Message: "denied"}, true,
		},
		"StatefulSet": {
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), Selector: selector}, Status: appsv1.StatefulSetStatus{Replicas: 1}},
			1,
			adoption.Creation{Missing: 2, RefusedAt: later, Message: event.Message, ByQuota: true},
			true,
		},
		"DaemonSet": {
			&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, CurrentNumberScheduled: 1}},
			1,
			adoption.Creation{Missing: 1, RefusedAt: later, Message: event.Message, ByQuota: true},
			true,
		},
		"CronJob": {
			&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: batchv1.CronJobStatus{Active: []corev1.ObjectReference{{UID: "uid-x"}}}},
			0,
			adoption.Creation{Missing: 1, RefusedAt: later, Message: event.Message, ByQuota: true},
			true,
		},
		"CronJob between its jobs": {&batchv1.CronJob{ObjectMeta: meta}, 0, adoption.Creation{}, false},
	} {
		live := newEventReader(event, foreign)
		kind, _ := SupportedKind("apps", "Deployment")
		s := &TargetSnapshot{Kind: kind, Object: c.object, Pods: make([]corev1.Pod, c.pods)}
		s.readKindFields()
		s.podOwners = map[types.UID]bool{c.object.GetUID(): true}

		in := adoption.Input{}
		if err := (SnapshotReader{Live: live}).readCreation(t.Context(), s, &in); err != nil {
			t.Fatalf("%s: readCreation: %v, want no error", name, err)
		}

		got := in.Creation
		if !got.RefusedAt.Equal(c.want.RefusedAt) || got.Missing != c.want.Missing || got.Message != c.want.Message || got.ByQuota != c.want.ByQuota {
			t.Errorf("%s: readCreation = %+v, want %+v", name, got, c.want)
		}
		if lacks := LacksPods(c.object); lacks != c.lacks {
			t.Errorf("%s: LacksPods = %t, want %t", name, lacks, c.lacks)
		}
	}
}
