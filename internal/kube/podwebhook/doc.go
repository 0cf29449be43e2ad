// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podwebhook changes pods as they are created. Several parts of Crane may each add something: a chain asks them one after the
// other. Whatever goes wrong, the pod is created: without what could not be added.
//
// It must not know what the mutators are for.
package podwebhook
