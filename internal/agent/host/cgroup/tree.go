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
	// maxPods and maxContainers bound what is kept of a tree, whatever somebody makes in it. A kubelet runs 110 pods by default.
	maxPods       = 1000
	maxContainers = 100
	// scansPerRescan is the number of scans after which a pod's containers are looked for again. A container that is new in an old pod, as
	// after a restart, is seen that much later; the pod's own figures have it at once.
	scansPerRescan = 5
)

// Container is a container's group, or a pod's sandbox, which looks the same.
type Container struct {
	// ID is the runtime's id.
	ID string
	// Runtime is containerd, cri-o or docker.
	Runtime string
	// Path of the group below a hierarchy's root.
	Path string
	Stat Stat

	group    *group
	lastScan uint64
}

// Pod is a pod's group.
type Pod struct {
	UID   string
	Class Class
	// Path of the group below a hierarchy's root.
	Path string
	Stat Stat
	// Containers are in the order of their ids.
	Containers []*Container

	name      string
	dir       string
	group     *group
	lastScan  uint64
	firstScan uint64
	links     uint64 // of the directory when its containers were looked for; 0 for not known
}

// Tree is the groups of all pods, whose files stay open from one scan to the next. It is not safe for concurrent use.
type Tree struct {
	layout     Layout
	reader     *host.Reader
	pods       map[string]*Pod // by the path
	sorted     []*Pod
	scans      uint64
	dirs       []podDir
	pathBuffer []byte
	// version counts scans that saw a pod or a container come or go.
	version uint64
	// checkLinks and all tell of which pods the containers are looked for.
	checkLinks, rescanAll bool
}

type podDir struct {
	dir   string
	class Class
}

// NewTree returns a tree that reads with a reader.
func NewTree(layout Layout, reader *host.Reader) *Tree {
	t := &Tree{layout: layout, reader: reader, pods: map[string]*Pod{}}
	if layout.Pods != "" {
		t.dirs = append(t.dirs, podDir{layout.Pods, Guaranteed})
		for _, c := range listClassDirs(layout.Pods, layout.Driver) {
			t.dirs = append(t.dirs, podDir{filepath.Join(layout.Pods, c.dir), c.class})
		}
	}
	return t
}

// CheckLinks lets each scan look for containers of pods that have more or less of them than before, also of those that are there for long,
// at the price of a stat(2) for each. One that took the place of another between two scans is seen as late as without, or after RescanAll.
func (t *Tree) CheckLinks() { t.checkLinks = true }

// RescanAll lets the next scan look for the containers of all pods.
func (t *Tree) RescanAll() { t.rescanAll = true }

// Version is another number after a scan that saw pods or containers come or go.
func (t *Tree) Version() uint64 { return t.version }

// Pods are those of the last scan, in the order of their UIDs. They are changed by the next.
func (t *Tree) Pods() []*Pod { return t.sorted }

// Close closes all files.
func (t *Tree) Close() {
	for _, p := range t.pods {
		p.close()
	}
	clear(t.pods)
	t.sorted = nil
}

// Scan brings the tree up to date: pods and containers that came and went. Those that went between two looks are no error.
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
		// What was not listed may still be there.
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
		slices.SortFunc(t.sorted, func(a, b *Pod) int { return strings.Compare(a.UID+a.Path, b.UID+b.Path) })
	}
	for _, p := range t.sorted {
		if t.needsRescan(p) {
			t.scanContainers(p)
		}
	}
	t.rescanAll = false
	return nil
}

// needsRescan tells whether a pod's containers are to be looked for. Its directory has a link for each that is in it.
func (t *Tree) needsRescan(p *Pod) bool {
	due := t.rescanAll || (t.scans-p.firstScan)%scansPerRescan == 0
	if !t.checkLinks {
		return due || p.Stat.Has == 0
	}
	links, err := host.Links(p.dir)
	due = due || err != nil || links != p.links || links < 2
	p.links = links
	return due
}

// visitDir takes note of a directory among the pods and tells whether it is a new pod.
func (t *Tree) visitDir(d podDir, name []byte) bool {
	t.pathBuffer = append(append(append(t.pathBuffer[:0], d.dir...), '/'), name...)
	if p, ok := t.pods[string(t.pathBuffer)]; ok {
		p.lastScan = t.scans
		return false
	}
	path, dir := string(t.pathBuffer), string(name)
	uid := parsePodUID(name, t.layout.Driver) // changes name
	if uid == nil || len(t.pods) >= maxPods {
		return false
	}
	t.pods[path] = &Pod{UID: string(uid), Class: d.class, Path: path, name: dir, dir: filepath.Join(t.layout.cpu, path), group: t.layout.openGroup(path), lastScan: t.scans, firstScan: t.scans}
	return true
}

func (t *Tree) scanContainers(p *Pod) {
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
		p.Containers = append(p.Containers, &Container{ID: string(id), Runtime: runtime, Path: path, group: t.layout.openGroup(path), lastScan: t.scans})
		changed = true
	})
	if err != nil {
		p.links = 0
		return // The pod is about to vanish; the next scan tells.
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

func (p *Pod) close() {
	p.group.close()
	for _, c := range p.Containers {
		c.group.close()
	}
}

// Read reads the wanted parts of every pod, and of every container. What vanished or cannot be read has no part; errors of files
// that are there are counted, and the first is returned.
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
		return fmt.Errorf("%d cgroups could not be read; the first: %w", failed, first)
	}
	return nil
}
