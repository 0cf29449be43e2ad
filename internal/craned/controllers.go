// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"slices"
	"strings"
)

// recommendationController is the name of the controllers behind RecommendationRule and Recommendation.
const recommendationController = "recommendation"

// costController is the name of what keeps the books of the cluster.
const costController = "cost"

// Names of the controllers behind TimeSeriesPrediction and ClusterNodePrediction.
const (
	timeSeriesPredictionController  = "timeseriesprediction"
	clusterNodePredictionController = "clusternodeprediction"
)

// nodeLoadController is the name of what writes the load of nodes into their annotations.
const nodeLoadController = "nodeload"

// rebalanceController is the name of what moves pods off hot nodes.
const rebalanceController = "rebalance"

func knownControllers() string { return strings.Join(controllerNames(), ", ") }

// runsController tells whether a controller is wanted: named, or included by *, and not left out by -name.
func (o *Options) runsController(name string) bool {
	if slices.Contains(o.Controllers, "-"+name) {
		return false
	}
	return slices.Contains(o.Controllers, name) || slices.Contains(o.Controllers, "*")
}
