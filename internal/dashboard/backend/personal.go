// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/kube/clusteraccess"
)

// NewPersonal returns a view of the cluster of config.access for several persons, and their access reviews. Crane's kinds
// are read with the rights of the server, the rest with those of the person who asks.
func NewPersonal(config Config) (*View, *dashboard.Reviews, error) {
	serverConfig, err := config.Access.Config()
	if err != nil {
		return nil, nil, err
	}

	reviews, err := dashboard.NewReviews(serverConfig, config.Clock)
	if err != nil {
		return nil, nil, err
	}

	connection, err := rest.HTTPClientFor(serverConfig)
	if err != nil {
		return nil, nil, fmt.Errorf("API server %s: %w", serverConfig.Host, err)
	}

	mapper, err := apiutil.NewDynamicRESTMapper(serverConfig, connection)
	if err != nil {
		return nil, nil, fmt.Errorf("API server %s: %w", serverConfig.Host, err)
	}

	personal := rest.AnonymousClientConfig(serverConfig)
	personal.Wrap(dashboard.PersonalTransport)
	config.Cache.Off = true // A pod keeps no files.
	config.Access = &clusteraccess.Access{Fixed: &clusteraccess.Fixed{Config: serverConfig, Mapper: mapper}}
	config.Personal = &clusteraccess.Access{Fixed: &clusteraccess.Fixed{Config: personal, Mapper: mapper, Personal: true}}

	return New(config), reviews, nil
}
