// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command nodekit contains the programs that run inside a real node: the node's first process and the programs of the
// test images. Outside it watches the removal of sessions. It is one static binary, so that a node needs one file and
// all images share a layer.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/testbed/realnode/cleanup"
	"crane.io/crane/internal/testbed/realnode/nodeinit"
	"crane.io/crane/internal/testbed/realnode/testprogram"
)

func main() {
	if err := run(os.Args); err != nil {
		termtext.PrintError(os.Stderr, "nodekit", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if filepath.Base(args[0]) == nodeinit.RuntimeName {
		return nodeinit.RunRuntime(args)
	}

	if len(args) > 1 {
		switch args[1] {
		case "init":
			return nodeinit.RunInit()
		case nodeinit.InsideArg:
			return nodeinit.RunInside()
		case nodeinit.MachineArg:
			return nodeinit.RunMachine()

		case "watch":
			if len(args) != 3 {
				return fmt.Errorf("watch: requires the directory of a session")
			}

			return cleanup.Watch(args[2], os.Stdin)
		}
	}

	// The kernel of a virtual machine starts this program as /init, possibly with arguments of its command line.
	if os.Getpid() == 1 && filepath.Base(args[0]) == "init" {
		return nodeinit.BootMachine()
	}

	if len(args) < 2 {
		return fmt.Errorf("missing argument: want init or one of %v", testprogram.Names())
	}

	return testprogram.Run(args[1], args[2:])
}
