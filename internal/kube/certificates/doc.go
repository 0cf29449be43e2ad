// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates creates, stores and renews the certificates with which a component of Crane serves the API server, so that
// no certificate has to be provided. An authority and a serving certificate are stored in one Secret that all replicas share. The
// authority is written into the webhook configurations and APIServices of the component.
//
// It is independent of the component and of what callers do while a certificate is missing.
package certificates
