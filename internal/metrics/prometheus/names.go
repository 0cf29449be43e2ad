// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"strings"

	"crane.io/crane/internal/kube/workload"
)

// ownerFromName guesses the workload from the name that the controller of each kind gives to its pods. It is what
// remains without kube-state-metrics, and it can be wrong: a DaemonSet, a Job and a bare ReplicaSet name their pods
// alike (DaemonSet is taken), and a pod may have been named by hand.
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

func cutLast(name string) (before, after string, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 || i == len(name)-1 {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}

// suffixLetters are those of generated names: no vowels, nothing that looks like another.
const suffixLetters = "bcdfghjklmnpqrstvwxz2456789"

func isSuffix(s string) bool { return len(s) == 5 && onlyOf(s, suffixLetters) }

// isTemplateHash recognises pod-template-hash, an encoded 32-bit number.
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

// newRef completes a reference. Sources of metrics name kinds without their group; it is known for the usual ones.
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
	}
	return r
}
