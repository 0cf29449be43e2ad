// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hostrecording

import (
	"maps"
	"slices"
	"strings"
)

// variants are recordings under other cgroup names: those of the same host with another driver or runtime, or without a
// v2 tree beside v1's. The contents are equal.
func variants() map[string]variant {
	return map[string]variant{
		"v1-cgroupfs-containerd": {source: "hybrid-cgroupfs", v1: true},
		"v1-cgroupfs-crio":       {source: "hybrid-cgroupfs", v1: true, prefix: "crio-"},
		"v1-systemd-containerd":  {source: "hybrid-cgroupfs", v1: true, systemd: true, prefix: "cri-containerd-"},
		"v1-systemd-crio":        {source: "hybrid-cgroupfs", v1: true, systemd: true, prefix: "crio-"},
		"v2-cgroupfs-crio":       {source: "v2-systemd-crio", prefix: "crio-"},
	}
}

type variant struct {
	source      string
	v1, systemd bool
	// prefix is the runtime's prefix of a container ID in cgroup names.
	prefix string
}

// Nodes returns the recordings of real nodes by TestRecord of test/e2e/node: a kubelet, a runtime and a kernel, with
// four pods that run the same programs under the same UIDs.
func Nodes() []string {
	return []string{"debian-hybrid-systemd-containerd", "debian-v2-cgroupfs-containerd", "debian-v2-systemd-containerd", "debian-v2-cgroupfs-crio", "debian-v2-systemd-crio"}
}

// Names returns the other recordings: of a host with scripted groups, two made by hand, and variants of these.
func Names() []string {
	return append([]string{"hybrid-cgroupfs", "v2-systemd-containerd", "v2-systemd-crio"}, slices.Sorted(maps.Keys(variants()))...)
}

// rename returns a recording under a variant's cgroup names.
func (v variant) rename(r Recording) Recording {
	out := Recording{Moments: make([]Moment, len(r.Moments))}
	for i, m := range r.Moments {
		out.Moments[i] = Moment{At: m.At, Files: make(map[string]string, len(m.Files))}
		for path, content := range m.Files {
			if v.v1 && strings.HasPrefix(path, "sys/fs/cgroup/unified/") {
				continue
			}

			out.Moments[i].Files[v.path(path)] = content
		}
	}

	return out
}

func (v variant) path(path string) string {
	before, below, ok := strings.Cut(path, "/kubepods")
	if !ok || !strings.HasPrefix(path, "sys/fs/cgroup/") {
		return path
	}

	parts := strings.Split("kubepods"+below, "/")
	above := ""
	for i, part := range parts[:len(parts)-1] {
		if v.systemd {
			parts[i], above = v.slice(part, above)
		} else {
			parts[i] = v.plain(part)
		}
	}

	return before + "/" + strings.Join(parts, "/")
}

// slice returns the systemd name of a group below a slice whose name it repeats.
func (v variant) slice(part, above string) (name, stem string) {
	switch uid, pod := strings.CutPrefix(part, "pod"); {
	case above == "":
		return part + ".slice", part
	case pod:
		stem = above + "-pod" + strings.ReplaceAll(uid, "-", "_")
		return stem + ".slice", stem
	case len(part) == idLength:
		return v.prefix + part + ".scope", above
	}

	stem = above + "-" + part
	return stem + ".slice", stem
}

// idLength is the length of a container ID.
const idLength = 64

// plain returns the cgroupfs name of a group.
func (v variant) plain(part string) string {
	if stem, ok := strings.CutSuffix(part, ".slice"); ok {
		stem = stem[strings.LastIndexByte(stem, '-')+1:]
		if uid, pod := strings.CutPrefix(stem, "pod"); pod {
			return "pod" + strings.ReplaceAll(uid, "_", "-")
		}

		return stem
	}

	if stem, ok := strings.CutSuffix(part, ".scope"); ok {
		if v.prefix == "" {
			return stem[max(len(stem)-idLength, 0):]
		}

		return stem
	}

	if len(part) == idLength {
		return v.prefix + part
	}

	return part
}
