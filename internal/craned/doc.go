// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package craned puts the controller manager together: flags, their defaults and checks, the data source, health, and
// the life of controller-runtime's manager. What the controllers do is in internal/controller; this package only
// builds them, starts them and stops them.
package craned
