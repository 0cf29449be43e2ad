// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"os"
	"testing"

	"crane.io/crane/test/e2e/node"
)

func TestMain(m *testing.M) { os.Exit(node.Main(m, node.Setup{Services: true})) }
