// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package optoutlist

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// podOf returns a pod of a controller; without a kind it has none.
func podOf(namespace, apiVersion, kind, name string, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: labels}}
	if kind != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, Controller: new(true)}}
	}

	return p
}

// TestExcludesPod checks that the label of a pod, its namespace and its workload excludes it, and that an error is returned while an object
// that must exist cannot be read.
func TestExcludesPod(t *testing.T) {
	optedOut := map[string]string{"crane.io/opt-out": "true"}
	hash := map[string]string{"pod-template-hash": "5d4f"}
	meta := func(name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}
	}

	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"crane.io/opt-out": "false"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "quiet", Labels: optedOut}},
		&appsv1.Deployment{ObjectMeta: meta("web", optedOut)}, &appsv1.Deployment{ObjectMeta: meta("api", nil)},
		&appsv1.StatefulSet{ObjectMeta: meta("db", optedOut)}, &appsv1.DaemonSet{ObjectMeta: meta("log", optedOut)},
		&batchv1.CronJob{ObjectMeta: meta("report", optedOut)},
	}

	reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		want    bool
		wantErr bool
	}{
		"pod":                               {podOf("shop", "", "", "", optedOut), true, false},
		"bare pod":                          {podOf("shop", "", "", "", nil), false, false},
		"namespace":                         {podOf("quiet", "", "", "", nil), true, false},
		"unknown namespace":                 {podOf("new", "", "", "", nil), false, true},
		"Deployment":                        {podOf("shop", "apps/v1", "ReplicaSet", "web-5d4f", hash), true, false},
		"Deployment without it":             {podOf("shop", "apps/v1", "ReplicaSet", "api-5d4f", hash), false, false},
		"unknown Deployment":                {podOf("shop", "apps/v1", "ReplicaSet", "new-5d4f", hash), false, true},
		"ReplicaSet of its own":             {podOf("shop", "apps/v1", "ReplicaSet", "web-5d4f", nil), false, false},
		"StatefulSet":                       {podOf("shop", "apps/v1", "StatefulSet", "db", nil), true, false},
		"StatefulSet of another API group":  {podOf("shop", "apps.kruise.io/v1beta1", "StatefulSet", "db", nil), false, false},
		"DaemonSet":                         {podOf("shop", "apps/v1", "DaemonSet", "log", nil), true, false},
		"CronJob":                           {podOf("shop", "batch/v1", "Job", "report-29384756", nil), true, false},
		"Job with a name as of a CronJob's": {podOf("shop", "batch/v1", "Job", "import-20250101", nil), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ExcludesPod(t.Context(), reader, test.pod)
			if got != test.want || (err != nil) != test.wantErr {
				t.Errorf("%t, %v, want %t, an error: %t", got, err, test.want, test.wantErr)
			}
		})
	}

	unsynced := interceptor.NewClient(reader, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("the wait for the cache has no deadline, want one")
			}

			return errors.New("not synced")
		},
	})

	if _, err := ExcludesPod(t.Context(), unsynced, podOf("shop", "", "", "", nil)); err == nil {
		t.Error("ExcludesPod returned no error while the cache is not synced, want one")
	}
}
