// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"regexp"
	"strings"
)

// AnyRun stands for the generated parts of a name that differ from run to run.
const AnyRun = "*"

// RunGroup returns the reference under which the runs of one template are grouped: a pod or a Job that no controller owns, or an object of a
// custom kind, whose name has generated parts (CI jobs, Airflow tasks, workflows). Those parts become AnyRun: etl-load-8f3a2b1c is of
// etl-load-*. Names are compared within their namespace alone, so that nobody can join the runs of others. All other references are
// returned as they are; a group is a group of itself.
//
// A name is split at hyphens, dots and underscores. Generated parts are:
//
//   - anywhere: UUIDs, at least eight characters of digits and letters mixed, at least eight digits, and the five characters that Kubernetes
//     generates if they have a digit;
//   - at the end: the five characters of Kubernetes, six or more of digits and letters mixed, four digits or more, and numbers before them.
func (r Ref) RunGroup() Ref {
	if !isRun(r.Kind) || strings.Contains(r.Name, AnyRun) {
		return r
	}

	r.Name = runTemplate(r.Name)
	return r
}

// RunsToCompletion reports whether the kind of the workload ends by itself. The runs of other kinds are known by their usage alone.
func (r Ref) RunsToCompletion() bool { return r.Kind == "Job" || r.Kind == "CronJob" }

// isRun reports whether objects of a kind may be single runs of something that has no object of its own. The pods of the other kinds are
// their replicas.
func isRun(kind string) bool {
	switch kind {
	case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "CronJob", "ReplicationController", "Rollout", "CloneSet", "Node", "":
		return false
	}

	return true
}

// IsRunGroup reports whether the reference is a group of runs.
func (r Ref) IsRunGroup() bool { return isRun(r.Kind) && strings.Contains(r.Name, AnyRun) }

var uuid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// runTemplate replaces the generated parts of a name.
func runTemplate(name string) string {
	name = uuid.ReplaceAllString(name, AnyRun)
	parts, separators := splitName(name)
	for i, part := range parts {
		if i > 0 && isGenerated(part) {
			parts[i] = AnyRun
		}
	}

	// From the end on, weaker signs count. The first part is never generated alone.
	ending := len(parts)
	for ending > 1 && (parts[ending-1] == AnyRun || isGeneratedEnding(parts[ending-1]) || ending < len(parts) && isDigits(parts[ending-1])) {
		ending--
	}

	if ending == len(parts) {
		ending = numbersAtEnd(parts)
	}

	if ending == len(parts) {
		return joinName(parts, separators)
	}

	return joinName(append(parts[:ending:ending], AnyRun), separators)
}

// numbersAtEnd returns where the numbers at the end of a name begin if together they are a date or a counter: they have four digits or
// more. Otherwise it returns the number of parts.
func numbersAtEnd(parts []string) int {
	const enough = 4
	digits := 0
	first := len(parts)
	for first > 1 && isDigits(parts[first-1]) {
		first--
		digits += len(parts[first])
	}

	if digits < enough {
		return len(parts)
	}

	return first
}

// splitName splits a name into its parts and the separators between them.
func splitName(name string) (parts []string, separators []byte) {
	start := 0
	for i := range len(name) {
		if strings.IndexByte("-._", name[i]) >= 0 {
			parts = append(parts, name[start:i])
			separators = append(separators, name[i])
			start = i + 1
		}
	}

	return append(parts, name[start:]), separators
}

func joinName(parts []string, separators []byte) string {
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteByte(separators[i-1])
		}
		b.WriteString(part)
	}

	return b.String()
}

// generatedLetters are the characters of names that Kubernetes generates.
const generatedLetters = "bcdfghjklmnpqrstvwxz2456789"

// isGenerated reports whether a part of a name is certainly generated.
func isGenerated(part string) bool {
	const long = 8
	switch {
	case len(part) >= long && (isMixed(part) || isDigits(part)):
		return true
	case len(part) == 5 && isMixed(part):
		return strings.Trim(part, generatedLetters) == ""
	}

	return false
}

// isGeneratedEnding reports whether the last part of a name is generated.
func isGeneratedEnding(part string) bool {
	const mixed = 6
	return len(part) == 5 && strings.Trim(part, generatedLetters) == "" && !isDigits(part) || len(part) >= mixed && isMixed(part)
}

// isMixed reports whether digits and letters alternate in a part, other than in a version such as v1beta1 or python311.
func isMixed(part string) bool {
	changes := 0
	for i := 1; i < len(part); i++ {
		if isDigits(part[i:i+1]) != isDigits(part[i-1:i]) {
			changes++
		}
	}

	return changes > 1 && !version.MatchString(part)
}

var version = regexp.MustCompile(`^v[0-9]+(alpha|beta|rc)[0-9]+$`)

func isDigits(part string) bool { return part != "" && strings.Trim(part, "0123456789") == "" }
