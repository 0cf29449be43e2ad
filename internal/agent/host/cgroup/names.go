// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"strings"
)

// Class is the QoS class of a pod, derived from its directory.
type Class string

// QoS classes.
const (
	Guaranteed Class = "Guaranteed"
	Burstable  Class = "Burstable"
	BestEffort Class = "BestEffort"
)

// listClassDirs returns the directories of Burstable and BestEffort pods below the group of all pods. Guaranteed pods are beside them.
func listClassDirs(pods string, d Driver) [2]struct {
	dir   string
	class Class
} {
	burstable, bestEffort := "burstable", "besteffort"
	if d == Systemd {
		// A slice's name includes those of its parents.
		prefix := strings.TrimSuffix(pods[strings.LastIndexByte(pods, '/')+1:], ".slice")
		burstable, bestEffort = prefix+"-burstable.slice", prefix+"-besteffort.slice"
	}
	return [2]struct {
		dir   string
		class Class
	}{{burstable, Burstable}, {bestEffort, BestEffort}}
}

// parsePodUID returns the UID in the name of a pod's directory: pod<uid>, or kubepods-burstable-pod<uid>.slice with underscores for
// dashes. It returns nil for other directories. The result shares name's bytes, whose underscores become dashes.
func parsePodUID(name []byte, d Driver) []byte {
	var uid []byte
	if d == Systemd {
		rest, ok := bytes.CutSuffix(name, []byte(".slice"))
		at := bytes.LastIndex(rest, []byte("-pod"))
		if !ok || at < 0 {
			return nil
		}
		uid = rest[at+len("-pod"):]
	} else {
		var ok bool
		if uid, ok = bytes.CutPrefix(name, []byte("pod")); !ok {
			return nil
		}
	}
	// A UUID, or the hash of a static pod's manifest.
	if len(uid) == 0 || len(uid) > 63 {
		return nil
	}
	for i, c := range uid {
		switch {
		case c == '_' && d == Systemd:
			uid[i] = '-'
		case '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '.':
		default:
			return nil
		}
	}
	return uid
}

// idLength is the length of the hexadecimal IDs of containerd, CRI-O and Docker.
const idLength = 64

// runtimes maps prefixes of container directories to runtimes.
var runtimes = map[string]string{"": "containerd", "cri-containerd": "containerd", "crio": "cri-o", "docker": "docker"}

// parseContainerID returns runtime and ID of a container's directory: <id>, crio-<id> or cri-containerd-<id>.scope. The ID is empty for
// others, such as crio-conmon-<id>.scope, CRI-O's own process.
func parseContainerID(name []byte, d Driver) (runtime string, id []byte) {
	if d == Systemd {
		var ok bool
		if name, ok = bytes.CutSuffix(name, []byte(".scope")); !ok {
			return "", nil
		}
	}
	if len(name) < idLength {
		return "", nil
	}
	prefix, id := name[:len(name)-idLength], name[len(name)-idLength:]
	for _, c := range id {
		if !strings.ContainsRune("0123456789abcdef", rune(c)) {
			return "", nil
		}
	}
	if len(prefix) > 0 {
		if prefix[len(prefix)-1] != '-' {
			return "", nil
		}
		prefix = prefix[:len(prefix)-1]
	} else if d == Systemd {
		return "", nil // Every scope has a prefix.
	}
	runtime, ok := runtimes[string(prefix)]
	if !ok {
		return "", nil
	}
	return runtime, id
}
