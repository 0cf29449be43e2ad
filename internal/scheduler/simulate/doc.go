// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulate is the command `crane-scheduler simulate`: it runs each policy on each seed of each scenario and
// compares them.
//
// Its packages are simscenario (scenario files), simcluster (the simulated cluster and its true usage), peer (the
// policies that Crane is compared with), engine (the real scheduler in virtual time), quality (measures) and summary
// (output).
package simulate
