// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Names of the Service and the APIService, which are those of metrics-server.
const (
	namespace   = metav1.NamespaceSystem
	serviceName = "metrics-server"
	apiService  = "v1beta1.metrics.k8s.io"
	fieldOwner  = "crane-simnode"
)

// Hosts returns the host names for which the aggregator verifies the serving certificate.
func Hosts() []string { return []string{serviceName + "." + namespace + ".svc"} }

// Install creates the APIService and an ExternalName Service that lead to a port of this machine. It may be called
// again with another port.
func Install(ctx context.Context, client kubernetes.Interface, ca []byte, port int) error {
	if err := installService(ctx, client); err != nil {
		return err
	}
	want := apiregistrationv1.APIService{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService"},
		ObjectMeta: metav1.ObjectMeta{Name: apiService},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: Group, Version: Version, GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: ca,
			Service: &apiregistrationv1.ServiceReference{Namespace: namespace, Name: serviceName, Port: new(int32(port))},
		},
	}
	body, err := json.Marshal(struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              apiregistrationv1.APIServiceSpec `json:"spec"`
	}{want.TypeMeta, want.ObjectMeta, want.Spec})
	if err != nil {
		return fmt.Errorf("encode API service %s: %w", apiService, err)
	}
	err = client.CoreV1().RESTClient().Patch("application/apply-patch+yaml").
		AbsPath("/apis/apiregistration.k8s.io/v1/apiservices", apiService).
		Param("fieldManager", fieldOwner).Param("force", "true").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("install API service %s: %w", apiService, err)
	}
	return nil
}

// installService creates the ExternalName Service that leads to this machine.
func installService(ctx context.Context, client kubernetes.Interface) error {
	services := client.CoreV1().Services(namespace)
	want := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName, Namespace: namespace},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	_, err := services.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		old, getErr := services.Get(ctx, serviceName, metav1.GetOptions{})
		if getErr == nil && old.Spec.Type == want.Spec.Type && old.Spec.ExternalName == want.Spec.ExternalName {
			return nil
		}
		return fmt.Errorf("service %s/%s exists with another type: want ExternalName localhost", namespace, serviceName)
	}
	if err != nil {
		return fmt.Errorf("service %s/%s: %w", namespace, serviceName, err)
	}
	return nil
}
