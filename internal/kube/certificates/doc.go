// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates makes, keeps and renews the certificates with which a component of Crane is called by the API server,
// so that nobody has to bring some and no key lies in a file. An authority and a serving certificate live in one Secret that
// all replicas share; whoever is first writes, the others follow. The authority is told to those who call: webhook
// configurations and APIServices.
//
// It belongs to no binary. It must not know what is served, nor decide what a caller does while a certificate is missing.
package certificates
