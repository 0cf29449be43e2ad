// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stubCache has Deployment shop/web and Namespace shop, unless reading them returns an error.
type stubCache struct {
	cache.Cache
	deployment, namespace error
}

func (stubCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, nil
}

func (c stubCache) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch o := object.(type) {
	case *appsv1.Deployment:
		o.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Annotations: map[string]string{"analysis.crane.io/adoption": watching}}
		return c.deployment
	case *corev1.Namespace:
		o.Name = key.Name
		return c.namespace
	}

	return errors.New("the cache reads only Deployments and Namespaces")
}

// TestMutate_UnreadableWorkload checks that a workload that cannot be read is not taken for one that does not exist.
func TestMutate_UnreadableWorkload(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, "web")
	unsynced := apierrors.NewTimeoutError("the informer is not synced", 1)
	for _, test := range []struct {
		name  string
		cache stubCache
		// wantOperations is the number of patch operations, wantErr a part of the error; empty for none.
		wantOperations int
		wantErr        string
	}{
		{name: "workload and namespace in the cache", wantOperations: 1},
		{name: "workload does not exist", cache: stubCache{deployment: notFound}},
		{name: "namespace does not exist", cache: stubCache{namespace: notFound}},
		{name: "workload not synced", cache: stubCache{deployment: unsynced}, wantErr: "reading Deployment shop/web"},
		{name: "namespace not synced", cache: stubCache{namespace: unsynced}, wantErr: "reading namespace shop"},
		{name: "cache not started", cache: stubCache{deployment: &cache.ErrCacheNotStarted{}}, wantErr: "reading Deployment shop/web"},
		{name: "read forbidden", cache: stubCache{namespace: apierrors.NewForbidden(schema.GroupResource{}, "", nil)}, wantErr: "reading namespace shop"},
	} {
		find, err := NewCacheFinder(t.Context(), test.cache)
		if err != nil {
			t.Fatalf("NewCacheFinder returned error %v, want none", err)
		}

		m := NewMutator(find, unlimited)
		operations, err := m.Mutate(newPod("1", "512Mi"))
		if len(operations) != test.wantOperations {
			t.Errorf("%s: Mutate returned operations %+v, want %d", test.name, operations, test.wantOperations)
		}

		switch {
		case test.wantErr == "" && err != nil:
			t.Errorf("%s: Mutate returned error %q, want none", test.name, err)
		case test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)):
			t.Errorf("%s: Mutate returned error %v, want one with %q", test.name, err, test.wantErr)
		}

		wantFailures := 0.
		if test.wantErr != "" {
			wantFailures = 1
		}
		if got := testutil.ToFloat64(m); got != wantFailures {
			t.Errorf("%s: crane_adoption_pod_read_failures_total = %v after Mutate, want %v", test.name, got, wantFailures)
		}
	}
}
