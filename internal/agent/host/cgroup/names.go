// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"strings"
)

// Class is the QoS class of a pod, as the directory that it lies in tells.
type Class string

// The classes.
const (
	Guaranteed Class = "Guaranteed"
	Burstable  Class = "Burstable"
	BestEffort Class = "BestEffort"
)

// listClassDirs are the directories below the one of all pods in which the kubelet puts the pods of a class; those of class Guaranteed
// lie beside them.
func listClassDirs(pods string, d Driver) [2]struct {
	dir   string
	class Class
} {
	burstable, bestEffort := "burstable", "besteffort"
	if d == Systemd {
		// A slice's name holds those of all slices above it.
		prefix := strings.TrimSuffix(pods[strings.LastIndexByte(pods, '/')+1:], ".slice")
		burstable, bestEffort = prefix+"-burstable.slice", prefix+"-besteffort.slice"
	}
	return [2]struct {
		dir   string
		class Class
	}{{burstable, Burstable}, {bestEffort, BestEffort}}
}

// parsePodUID reads the UID out of the name of a pod's directory: pod<uid>, or kubepods-burstable-pod<uid>.slice, where the UID's dashes
// are underscores. It returns nil for any other directory. The result shares name's bytes, with underscores made dashes.
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

// idLength is the length of the hexadecimal ids that containerd, CRI-O and Docker give.
const idLength = 64

// runtimes are the prefixes of a container's directory by runtime.
var runtimes = map[string]string{"": "containerd", "cri-containerd": "containerd", "crio": "cri-o", "docker": "docker"}

// parseContainerID reads runtime and id out of the name of a directory in a pod's: <id>, crio-<id> or cri-containerd-<id>.scope. It
// returns an empty id for others, such as crio-conmon-<id>.scope, which is CRI-O's own process.
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
		return "", nil // every scope has a prefix
	}
	runtime, ok := runtimes[string(prefix)]
	if !ok {
		return "", nil
	}
	return runtime, id
}
