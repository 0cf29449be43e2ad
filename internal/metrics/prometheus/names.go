// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"strings"

	"crane.io/crane/internal/kube/workload"
)

// ownerFromName derives the workload from the pattern by which the controller of each kind names its pods, for use without
// kube-state-metrics. It can be wrong: a DaemonSet, a Job and a bare ReplicaSet name their pods alike (it returns DaemonSet), and a pod may
// have a custom name.
//
//	web-5d4f8c7b9d-x8k2p     Deployment web
//	backup-28412345-x8k2p    CronJob backup (minutes since 1970 by the controller)
//	import-3-x8k2p           Job import, index 3
//	db-0                     StatefulSet db
//	agent-x8k2p              DaemonSet agent
//	anything else            the pod itself
func ownerFromName(namespace, pod string) workload.Ref {
	base, last, ok := cutLast(pod)
	if !ok {
		return newRef(namespace, "Pod", pod)
	}

	if !isSuffix(last) {
		if isNumber(last) {
			return newRef(namespace, "StatefulSet", base)
		}

		return newRef(namespace, "Pod", pod)
	}

	// Two generated parts: a CronJob names its Jobs by the minute, and a Deployment its ReplicaSets by a hash.
	owner, middle, ok := cutLast(base)
	switch {
	case !ok:
		return newRef(namespace, "DaemonSet", base)
	case isNumber(middle) && (len(middle) == 8 || len(middle) == 10):
		return newRef(namespace, "CronJob", owner)
	case isTemplateHash(middle):
		return newRef(namespace, "Deployment", owner)
	case isNumber(middle):
		return newRef(namespace, "Job", owner)
	}

	return newRef(namespace, "DaemonSet", base)
}

// cutLast splits a name at its last hyphen.
func cutLast(name string) (before, after string, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 || i == len(name)-1 {
		return "", "", false
	}

	return name[:i], name[i+1:], true
}

// suffixLetters are the characters of generated names.
const suffixLetters = "bcdfghjklmnpqrstvwxz2456789"

func isSuffix(s string) bool { return len(s) == 5 && onlyOf(s, suffixLetters) }

// isTemplateHash reports whether s looks like a pod-template-hash, an encoded 32-bit number.
func isTemplateHash(s string) bool { return len(s) >= 6 && len(s) <= 10 && onlyOf(s, suffixLetters) }

func isNumber(s string) bool { return s != "" && onlyOf(s, "0123456789") }

func onlyOf(s, letters string) bool {
	for i := range len(s) {
		if strings.IndexByte(letters, s[i]) < 0 {
			return false
		}
	}

	return true
}

// newRef returns a reference with the API version of common kinds. Metrics contain kinds without their group.
func newRef(namespace, kind, name string) workload.Ref {
	r := workload.Ref{Namespace: namespace, Kind: kind, Name: name}
	switch kind {
	case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet":
		r.APIVersion = "apps/v1"
	case "Job", "CronJob":
		r.APIVersion = "batch/v1"
	case "Pod", "ReplicationController":
		r.APIVersion = "v1"
	case "Rollout":
		r.APIVersion = "argoproj.io/v1alpha1"
	case "DeploymentConfig":
		r.APIVersion = "apps.openshift.io/v1"
	}

	return r
}
