// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ehpa makes a HorizontalPodAutoscaler of each EffectiveHorizontalPodAutoscaler, with the forecast of its metrics as
// further metrics, and cron schedules as a floor under its replicas.
//
// A reconcile observes (the target's scale, what there is already, who else scales the same pods, which forecasts are
// good), plans (a pure function: which objects there should be, and what the conditions say) and acts. The HPA of
// kube-controller-manager stays the engine; where somebody else's HPA scales the pods a preview is computed here, by the
// same algorithm (pkg/scaling).
//
// It must not know how forecasts are made, nor how they reach the HPA.
package ehpa
