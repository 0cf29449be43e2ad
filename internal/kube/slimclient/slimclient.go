// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package slimclient is a clientset of the few API groups that crane-agent and craned use. That of client-go links the clients and the types of
// apply configurations of all groups, a quarter of the agent's image.
package slimclient

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Interface is a part of kubernetes.Interface, whose fake clients implement it as well.
type Interface interface {
	AppsV1() appsv1.AppsV1Interface
	AuthenticationV1() authenticationv1.AuthenticationV1Interface
	AuthorizationV1() authorizationv1.AuthorizationV1Interface
	CoordinationV1() coordinationv1.CoordinationV1Interface
	CoreV1() corev1.CoreV1Interface
}

type clientset struct {
	apps           *appsv1.AppsV1Client
	authentication *authenticationv1.AuthenticationV1Client
	authorization  *authorizationv1.AuthorizationV1Client
	coordination   *coordinationv1.CoordinationV1Client
	core           *corev1.CoreV1Client
}

// NewForConfig returns clients that share connections and the rate limit of the configuration.
func NewForConfig(config *rest.Config) (Interface, error) {
	shared := rest.CopyConfig(config)
	if shared.UserAgent == "" {
		shared.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if shared.RateLimiter == nil && shared.QPS > 0 {
		shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(shared.QPS, shared.Burst)
	}

	// All clients of the set share connections.
	connections, err := rest.HTTPClientFor(shared)
	if err != nil {
		return nil, fmt.Errorf("building the client of the API server: %w", err)
	}

	var c clientset
	var errs [5]error
	c.apps, errs[0] = appsv1.NewForConfigAndClient(shared, connections)
	c.authentication, errs[1] = authenticationv1.NewForConfigAndClient(shared, connections)
	c.authorization, errs[2] = authorizationv1.NewForConfigAndClient(shared, connections)

	c.coordination, errs[3] = coordinationv1.NewForConfigAndClient(shared, connections)
	c.core, errs[4] = corev1.NewForConfigAndClient(shared, connections)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("building the client of the API server: %w", err)
	}

	return c, nil
}

func (c clientset) AppsV1() appsv1.AppsV1Interface { return c.apps }
func (c clientset) AuthenticationV1() authenticationv1.AuthenticationV1Interface {
	return c.authentication
}
func (c clientset) AuthorizationV1() authorizationv1.AuthorizationV1Interface { return c.authorization }
func (c clientset) CoordinationV1() coordinationv1.CoordinationV1Interface    { return c.coordination }
func (c clientset) CoreV1() corev1.CoreV1Interface                            { return c.core }
