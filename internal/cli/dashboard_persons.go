// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"crane.io/crane/internal/dashboard"
)

// newPersonalView returns a view of the cluster of config.access for several persons, and their access reviews. Crane's kinds
// are read with the rights of the server, the rest with those of the person who asks.
func newPersonalView(config viewConfig) (*clusterView, *dashboard.Reviews, error) {
	own, err := config.access.config()
	if err != nil {
		return nil, nil, err
	}

	reviews, err := dashboard.NewReviews(own, config.clock)
	if err != nil {
		return nil, nil, err
	}

	connection, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, nil, fmt.Errorf("API server %s: %w", own.Host, err)
	}

	mapper, err := apiutil.NewDynamicRESTMapper(own, connection)
	if err != nil {
		return nil, nil, fmt.Errorf("API server %s: %w", own.Host, err)
	}

	personal := rest.AnonymousClientConfig(own)
	personal.Wrap(dashboard.PersonalTransport)
	config.cache.off = true // A pod keeps no files.
	config.access = &kubernetesFlags{fixed: &fixedAccess{config: own, mapper: mapper}}
	config.personal = &kubernetesFlags{fixed: &fixedAccess{config: personal, mapper: mapper, personal: true}}

	return newClusterView(config), reviews, nil
}
