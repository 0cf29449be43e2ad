// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"slices"
	"strings"
)

// recommendationController is the name of the controllers behind RecommendationRule and Recommendation.
const recommendationController = "recommendation"

// costController is the name of the controller that accounts the cost of the cluster.
const costController = "cost"

// Names of the controllers behind TimeSeriesPrediction and ClusterNodePrediction.
const (
	timeSeriesPredictionController  = "timeseriesprediction"
	clusterNodePredictionController = "clusternodeprediction"
)

// nodeLoadController is the name of the controller that writes the load of nodes into annotations.
const nodeLoadController = "nodeload"

// rebalanceController is the name of the controller that evicts pods from hot nodes.
const rebalanceController = "rebalance"

func knownControllers() string { return strings.Join(controllerNames(), ", ") }

// runsController reports whether a controller is enabled: named, or included by *, and not disabled by -name.
func (o *Options) runsController(name string) bool {
	if slices.Contains(o.Controllers, "-"+name) {
		return false
	}

	return slices.Contains(o.Controllers, name) || slices.Contains(o.Controllers, "*")
}
