// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import "slices"

// recommenders are all that craned has.
func recommenders() []recommender {
	return []recommender{
		resourceRecommender(),
		replicasRecommender(),
		hpaRecommender(), // After Resource, whose requests it acts on.
		idleNodeRecommender(),
		volumeRecommender(),
		serviceRecommender(),
		unusedRecommender(),
		packingRecommender(),
		throttleRecommender(),
		gpuRecommender(),
	}
}

func recommenderByName(name string) (recommender, bool) {
	all := recommenders()
	i := slices.IndexFunc(all, func(r recommender) bool { return r.name == name })
	if i < 0 {
		return recommender{}, false
	}
	return all[i], true
}

// evaluationOrder is where a recommender stands in the list: those that decide with what others decided come after them.
func evaluationOrder(name string) int {
	return slices.IndexFunc(recommenders(), func(r recommender) bool { return r.name == name })
}
