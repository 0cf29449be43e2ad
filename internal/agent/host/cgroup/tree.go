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
	// rescan is the number of scans after which a pod's containers are looked for again. A container that is new in an old pod, as
	// after a restart, is seen that much later; the pod's own figures have it at once.
	rescan = 5
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

	group *group
	seen  uint64
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

	name  string
	dir   string
	group *group
	seen  uint64
	age   uint64
	links uint64 // of the directory when its containers were looked for; 0 for not known
}

// Tree is the groups of all pods, whose files stay open from one scan to the next. It is not safe for concurrent use.
type Tree struct {
	layout Layout
	reader *host.Reader
	pods   map[string]*Pod // by the path
	sorted []*Pod
	scans  uint64
	dirs   []podDir
	key    []byte
	// changes counts scans that saw a pod or a container come or go.
	changes uint64
	// closely and all tell of which pods the containers are looked for.
	closely, all bool
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
		for _, c := range classDirs(layout.Pods, layout.Driver) {
			t.dirs = append(t.dirs, podDir{filepath.Join(layout.Pods, c.dir), c.class})
		}
	}
	return t
}

// LookClosely lets each scan look for containers of pods that have more or less of them than before, also of those that are there for long,
// at the price of a stat(2) for each. One that took the place of another between two scans is seen as late as without, or after LookAtAll.
func (t *Tree) LookClosely() { t.closely = true }

// LookAtAll lets the next scan look for the containers of all pods.
func (t *Tree) LookAtAll() { t.all = true }

// Changes is another number after a scan that saw pods or containers come or go.
func (t *Tree) Changes() uint64 { return t.changes }

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
			changed = t.see(d, name) || changed
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
		if p.seen != t.scans {
			p.close()
			delete(t.pods, path)
			changed = true
		}
	}
	if changed {
		t.changes++
		t.sorted = t.sorted[:0]
		for _, p := range t.pods {
			t.sorted = append(t.sorted, p)
		}
		slices.SortFunc(t.sorted, func(a, b *Pod) int { return strings.Compare(a.UID+a.Path, b.UID+b.Path) })
	}
	for _, p := range t.sorted {
		if t.due(p) {
			t.containers(p)
		}
	}
	t.all = false
	return nil
}

// due tells whether a pod's containers are to be looked for. Its directory has a link for each that is in it.
func (t *Tree) due(p *Pod) bool {
	due := t.all || (t.scans-p.age)%rescan == 0
	if !t.closely {
		return due || p.Stat.Has == 0
	}
	links, err := host.Links(p.dir)
	due = due || err != nil || links != p.links || links < 2
	p.links = links
	return due
}

// see takes note of a directory among the pods and tells whether it is a new pod.
func (t *Tree) see(d podDir, name []byte) bool {
	t.key = append(append(append(t.key[:0], d.dir...), '/'), name...)
	if p, ok := t.pods[string(t.key)]; ok {
		p.seen = t.scans
		return false
	}
	path, dir := string(t.key), string(name)
	uid := podUID(name, t.layout.Driver) // changes name
	if uid == nil || len(t.pods) >= maxPods {
		return false
	}
	t.pods[path] = &Pod{UID: string(uid), Class: d.class, Path: path, name: dir, dir: filepath.Join(t.layout.cpu, path), group: t.layout.group(path), seen: t.scans, age: t.scans}
	return true
}

func (t *Tree) containers(p *Pod) {
	changed := false
	err := t.reader.Subdirectories(p.dir, func(name []byte) {
		runtime, id := containerID(name, t.layout.Driver)
		if id == nil {
			return
		}
		for _, c := range p.Containers {
			if c.ID == string(id) {
				c.seen = t.scans
				return
			}
		}
		if len(p.Containers) >= maxContainers {
			return
		}
		path := p.Path + "/" + string(name)
		p.Containers = append(p.Containers, &Container{ID: string(id), Runtime: runtime, Path: path, group: t.layout.group(path), seen: t.scans})
		changed = true
	})
	if err != nil {
		p.links = 0
		return // The pod is about to vanish; the next scan tells.
	}
	before := len(p.Containers)
	p.Containers = slices.DeleteFunc(p.Containers, func(c *Container) bool {
		if c.seen != t.scans {
			c.group.close()
			return true
		}
		return false
	})
	if changed || len(p.Containers) != before {
		t.changes++
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
		count(p.group.read(t.reader, t.layout.Version, ofPods, &p.Stat))
		for _, c := range p.Containers {
			count(c.group.read(t.reader, t.layout.Version, ofContainers, &c.Stat))
		}
	}
	if first != nil {
		return fmt.Errorf("%d cgroups could not be read; the first: %w", failed, first)
	}
	return nil
}
