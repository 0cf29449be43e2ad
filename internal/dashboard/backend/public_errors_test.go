// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/kube/clusteraccess"
)

// TestUnavailableNamesNoAddress checks that the error of an API server that does not answer, and the source of a page for persons of different rights,
// have no address.
func TestUnavailableNamesNoAddress(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	config := &rest.Config{Host: server.URL}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	_, err = client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err == nil {
		t.Fatal("List at a closed server = nil, want an error")
	}

	host, _, splitErr := net.SplitHostPort(server.Listener.Addr().String())
	if splitErr != nil {
		t.Fatal(splitErr)
	}

	const want = "API server: the server cannot be reached: connection refused"
	for name, failure := range map[string]error{"unavailable": unavailable(err), "placementFailure": placementFailure(err)} {
		if got := dashboard.FailureOf(failure).Body.Message; got != want {
			t.Errorf("%s(%v) has the message %q, want %q", name, err, got, want)
		}
	}

	personal := &clusteraccess.Access{Fixed: &clusteraccess.Fixed{Config: config, Personal: true}}
	if got := personal.ServerName(); strings.Contains(got, host) {
		t.Errorf("ServerName() of a dashboard for many = %q, want no address", got)
	}

	own := &clusteraccess.Access{Fixed: &clusteraccess.Fixed{Config: config}}
	if got := own.ServerName(); !strings.Contains(got, host) {
		t.Errorf("ServerName() of the own kubeconfig = %q, want its address", got)
	}
}
