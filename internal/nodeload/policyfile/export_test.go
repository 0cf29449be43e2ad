// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policyfile

// Reload reads the file once and applies changes.
func (f *File) Reload(observer Observer) { f.file.Reload(observed(observer)) }
