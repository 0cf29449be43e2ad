// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"crane.io/crane/internal/agent/host"
)

const (
	// maxPods and maxContainers limit the size of a tree. A kubelet runs 110 pods by default.
	maxPods       = 1000
	maxContainers = 100
	// scansPerRescan is the number of scans after which the containers of a pod are listed again. A new container of an existing pod is
	// found with that delay; the pod's own statistics include it at once.
	scansPerRescan = 5
)

// Container is the group of a container or of a pod's sandbox, which looks the same.
type Container struct {
	// ID is the container ID.
	ID string
	// Runtime is containerd, cri-o or docker.
	Runtime string
	// Path is the group below the root of a hierarchy.
	Path string
	Stat Stat

	group    *group
	lastScan uint64
}

// PodGroup is the group of a pod.
type PodGroup struct {
	UID   string
	Class Class
	// Path is the group below the root of a hierarchy.
	Path string
	Stat Stat
	// Containers are sorted by ID.
	Containers []*Container

	dir       string
	group     *group
	lastScan  uint64
	firstScan uint64
	links     uint64 // link count of the directory at the last listing; 0 for unknown
}

// Tree holds the groups of all pods, whose files stay open between scans. It is not safe for concurrent use.
type Tree struct {
	layout     Layout
	reader     *host.Reader
	pods       map[string]*PodGroup // by path
	sorted     []*PodGroup
	scans      uint64
	dirs       []podDir
	pathBuffer []byte
	// version counts the scans that found changes.
	version uint64
	// checkLinks and rescanAll select the pods whose containers are listed.
	checkLinks, rescanAll bool
}

type podDir struct {
	dir   string
	class Class
}

// NewTree returns an empty tree.
func NewTree(layout Layout, reader *host.Reader) *Tree {
	t := &Tree{layout: layout, reader: reader, pods: map[string]*PodGroup{}}
	if layout.Pods != "" {
		t.dirs = append(t.dirs, podDir{layout.Pods, Guaranteed})
		for _, c := range listClassDirs(layout.Pods, layout.Driver) {
			t.dirs = append(t.dirs, podDir{filepath.Join(layout.Pods, c.dir), c.class})
		}
	}

	return t
}

// CheckLinks makes each scan compare the link counts of all pods' directories, one stat(2) each, and list the containers of those that
// changed. A container that replaced another between two scans is still found with a delay, or after RescanAll.
func (t *Tree) CheckLinks() { t.checkLinks = true }

// RescanAll makes the next scan list the containers of all pods.
func (t *Tree) RescanAll() { t.rescanAll = true }

// Version returns a number that changes when a scan finds new or removed pods or containers.
func (t *Tree) Version() uint64 { return t.version }

// Pods returns the pods of the last scan, sorted by UID. The next scan changes them.
func (t *Tree) Pods() []*PodGroup { return t.sorted }

// Close closes all files.
func (t *Tree) Close() {
	for _, p := range t.pods {
		p.close()
	}

	clear(t.pods)
	t.sorted = nil
}

// Scan updates the list of pods and containers. Those that vanish meanwhile are no error.
func (t *Tree) Scan() error {
	t.scans++
	changed := false
	var errs []error
	for _, d := range t.dirs {
		err := t.reader.Subdirectories(filepath.Join(t.layout.cpu, d.dir), func(name []byte) {
			changed = t.visitDir(d, name) || changed
		})
		if err != nil && !errors.Is(err, host.ErrGone) {
			errs = append(errs, err)
		}
	}

	if len(errs) > 0 {
		// Pods that were not listed may still exist.
		return errors.Join(errs...)
	}

	for path, p := range t.pods {
		if p.lastScan != t.scans {
			p.close()
			delete(t.pods, path)
			changed = true
		}
	}

	if changed {
		t.version++
		t.sorted = t.sorted[:0]
		for _, p := range t.pods {
			t.sorted = append(t.sorted, p)
		}

		slices.SortFunc(t.sorted, func(a, b *PodGroup) int { return strings.Compare(a.UID+a.Path, b.UID+b.Path) })
	}

	for _, p := range t.sorted {
		if t.needsRescan(p) {
			t.scanContainers(p)
		}
	}

	t.rescanAll = false
	return nil
}

// needsRescan reports whether a pod's containers are to be listed. The link count of its directory includes one per container.
func (t *Tree) needsRescan(p *PodGroup) bool {
	due := t.rescanAll || (t.scans-p.firstScan)%scansPerRescan == 0
	if !t.checkLinks {
		return due || p.Stat.Has == 0
	}

	links, err := host.Links(p.dir)
	due = due || err != nil || links != p.links || links < 2
	p.links = links

	return due
}

// visitDir records a directory and reports whether it is a new pod.
func (t *Tree) visitDir(d podDir, name []byte) bool {
	t.pathBuffer = append(append(append(t.pathBuffer[:0], d.dir...), '/'), name...)
	if p, ok := t.pods[string(t.pathBuffer)]; ok {
		p.lastScan = t.scans
		return false
	}

	path := string(t.pathBuffer)
	uid := parsePodUID(name, t.layout.Driver) // modifies name
	if uid == nil || len(t.pods) >= maxPods {
		return false
	}

	t.pods[path] = &PodGroup{
		UID:       string(uid),
		Class:     d.class,
		Path:      path,
		dir:       filepath.Join(t.layout.cpu, path),
		group:     t.layout.openGroup(path),
		lastScan:  t.scans,
		firstScan: t.scans,
	}

	return true
}

func (t *Tree) scanContainers(p *PodGroup) {
	changed := false
	err := t.reader.Subdirectories(p.dir, func(name []byte) {
		runtime, id := parseContainerID(name, t.layout.Driver)
		if id == nil {
			return
		}

		for _, c := range p.Containers {
			if c.ID == string(id) {
				c.lastScan = t.scans
				return
			}
		}

		if len(p.Containers) >= maxContainers {
			return
		}

		path := p.Path + "/" + string(name)
		p.Containers = append(p.Containers, &Container{
			ID:       string(id),
			Runtime:  runtime,
			Path:     path,
			group:    t.layout.openGroup(path),
			lastScan: t.scans,
		})

		changed = true
	})
	if err != nil {
		p.links = 0
		return // The pod is vanishing; the next scan drops it.
	}

	before := len(p.Containers)
	p.Containers = slices.DeleteFunc(p.Containers, func(c *Container) bool {
		if c.lastScan != t.scans {
			c.group.close()
			return true
		}

		return false
	})

	if changed || len(p.Containers) != before {
		t.version++
	}
	if changed {
		slices.SortFunc(p.Containers, func(a, b *Container) int { return strings.Compare(a.ID, b.ID) })
	}
}

func (p *PodGroup) close() {
	p.group.close()
	for _, c := range p.Containers {
		c.group.close()
	}
}

// Read reads the given parts of all pods and containers. Missing and failed parts are left out; the result reports the number of errors,
// except for vanished files, and the first one.
func (t *Tree) Read(ofPods, ofContainers Part) error {
	failed := 0
	var first error
	count := func(err error) {
		if err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
	}

	for _, p := range t.sorted {
		count(p.group.readParts(t.reader, t.layout.Version, ofPods, &p.Stat))
		for _, c := range p.Containers {
			count(c.group.readParts(t.reader, t.layout.Version, ofContainers, &c.Stat))
		}
	}

	if first != nil {
		return fmt.Errorf("reading cgroups: %d failed, the first: %w", failed, first)
	}

	return nil
}
