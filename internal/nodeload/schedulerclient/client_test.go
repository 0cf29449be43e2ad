// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package schedulerclient

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"crane.io/crane/internal/kube/clusteraccess"
)

// TestExplanations_TenantsPod checks that a pod of a tenant with the label of the scheduler is not asked.
func TestExplanations_TenantsPod(t *testing.T) {
	decoy := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "decoy", Labels: map[string]string{"app.kubernetes.io/name": "crane-scheduler"},
	}}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/portforward") {
			t.Errorf("Explanations sent %s %s, want no request to a pod of a tenant", r.Method, r.URL.Path)
			w.WriteHeader(http.StatusForbidden)
			return
		}

		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		if r.URL.Path == "/api/v1/pods" || r.URL.Path == "/api/v1/namespaces/shop/pods" {
			list.Items = append(list.Items, decoy)
		}

		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(server.Close)

	access := &clusteraccess.Access{Fixed: &clusteraccess.Fixed{
		Config: &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
	}}

	c := Client{Access: access, Namespace: "crane-system", Port: DefaultPort}
	got, err := c.Explanations(t.Context(), "shop", "web")
	if !errors.Is(err, ErrNoScheduler) {
		t.Errorf("Explanations(shop, web) = %v, %v, want %v", got, err, ErrNoScheduler)
	}
}

// TestExplanations_Redirect checks that an answer which names another address is not followed: the dashboard in the cluster reaches servers that the
// person who asks does not.
func TestExplanations_Redirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("the target of the redirect was asked, want no request")
		_, _ = w.Write([]byte(`{"explanations":[]}`))
	}))
	t.Cleanup(other.Close)

	scheduler := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	t.Cleanup(scheduler.Close)

	if got, err := (Client{Address: scheduler.URL}).Explanations(t.Context(), "shop", "web"); err == nil {
		t.Errorf("Explanations of a scheduler that redirects = %v, no error, want one", got)
	}
}
