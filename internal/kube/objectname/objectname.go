// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objectname shortens names of objects that are made of the names of others.
package objectname

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Shorten returns a name that Kubernetes accepts for an object: a longer one than 253 bytes loses its end and gets a hash of the whole name,
// so that it stays unique.
func Shorten(name string) string {
	const (
		maxLength = validation.DNS1123SubdomainMaxLength
		hashBytes = 5
	)

	if len(name) <= maxLength {
		return name
	}

	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:hashBytes])
	return strings.TrimRight(name[:maxLength-len(suffix)], "-.") + suffix
}
