// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policyfile

import (
	"bytes"
	_ "embed"
	"fmt"

	"crane.io/crane/pkg/nodeload"
)

// builtin is the policy of config/nodeload as well.
//
//go:embed default.yaml
var builtin []byte

// BuiltinFile returns the content of the file of Builtin.
func BuiltinFile() []byte { return bytes.Clone(builtin) }

// Builtin returns the default policy: that of config/nodeload, which needs no recording rules.
func Builtin() (*nodeload.Policy, error) {
	policy, err := Decode(builtin)
	if err != nil {
		return nil, fmt.Errorf("decoding the built-in policy: %w", err)
	}

	return policy, nil
}
