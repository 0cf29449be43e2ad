// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulate is the command `crane-scheduler simulate`: it takes scenarios and policies, runs each policy on each seed of
// each scenario, and shows how they compare. Its rooms are scenario (what is simulated), world (the truth), peer (what Crane is
// compared with), engine (the real scheduler in virtual time), quality (what is measured) and report (how it is shown).
package simulate
