// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command craned is Crane's controller manager.
package main

import (
	"os"

	"crane.io/crane/cmd/craned/command"
)

func main() {
	os.Exit(command.Run())
}
