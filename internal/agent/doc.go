// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent is crane-agent: it looks at a node, judges its rules and says what they would do. What is read is the packages' host,
// observe and inventory, what it means sense's and ruleset's, what is decided pkg/qos's; this one puts them together, behind flags. Each
// part is a Manager, and all of them run beside each other.
package agent
