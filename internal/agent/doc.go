// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent is crane-agent: it observes a node, evaluates its rules and executes the resulting plans as far as flags allow. It wires
// the packages that observe (host, observe, inventory), interpret (signals, ruleset), decide (pkg/qos) and act (act). Each part is a
// Manager, and all managers run concurrently.
package agent
