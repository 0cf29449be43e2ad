// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// Cache keeps the sketches of finished days in a directory, so that the next reading asks only for what is new. A file
// holds one resource of one day for some namespaces, with all their workloads, wanted or not. Files are written whole or
// not at all; what cannot be read is read anew from the source. Several processes may share a directory.
//
// Below Dir, a directory for each identity of a source holds one for each server that was met there: by the names of a
// few pods, a server behind a forwarded port is known again, and another one told apart.
type Cache struct {
	// Dir is made where it is missing, for its owner alone: it names workloads.
	Dir string
	// MaxAge and MaxBytes bound what Clean leaves.
	MaxAge   time.Duration
	MaxBytes int64
	// Now is the clock.
	Now func() time.Time
	// Warn is told, in a sentence, of what could not be used or kept; a cache never makes a reading fail.
	Warn func(string)
}

// Defaults of a cache: longer than the windows of policies, and about a month of 40,000 containers.
const (
	DefaultCacheAge   = 100 * 24 * time.Hour
	DefaultCacheBytes = 1 << 30
)

const (
	formatDir       = "v2"
	daySuffix       = ".day"
	fingerprintFile = "witness.json"
	tempPrefix      = ".tmp-"
	// maxFile bounds what is read of one file; a day of 100,000 containers is far smaller.
	maxFile = 512 << 20
)

// oldFormats are the directories of formats that are no longer read: their days lack what is kept today, and are read anew.
func oldFormats() []string { return []string{"v1"} }

// serverFingerprint is by what a server is known again.
type serverFingerprint struct {
	Day  series.Day `json:"day"`
	Pods []string   `json:"pods"`
}

// serverCache is the part of a cache that belongs to one server.
type serverCache struct {
	cache    *Cache
	source   metrics.DayReader
	identity string
	// grouped asks for days in which DaemonSets are kept apart by the groups of nodes.
	grouped bool
	// dir is empty until the server is known or a day with pods is kept.
	dir  string
	root string
	// newest is the day of the witness in dir.
	newest series.Day
	// warned keeps a sentence from being said for each day.
	warned map[string]bool
}

// open finds the server's days. It returns nil where there is no cache, or where whether it is the server cannot be told.
func (c *Cache) open(ctx context.Context, source metrics.DayReader, grouped bool) *serverCache {
	if c == nil {
		return nil
	}
	s := &serverCache{cache: c, source: source, identity: source.Identity(), grouped: grouped, warned: map[string]bool{}}
	s.root = filepath.Join(c.Dir, formatDir, hashOf(s.identity))
	entries, err := os.ReadDir(s.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Warn(fmt.Sprintf("the cache cannot be read: %v", err))
		return nil
	}
	for _, e := range entries {
		w, ok := readFingerprint(filepath.Join(s.root, e.Name(), fingerprintFile))
		if !e.IsDir() || !ok {
			continue
		}
		present, err := source.Present(ctx, w.Pods, w.Day.Start(), w.Day.End())
		if err != nil {
			c.Warn(fmt.Sprintf("the cache is not used: whether it is of this server cannot be told: %v", err))
			return nil
		}
		if 2*present > len(w.Pods) {
			s.dir, s.newest = filepath.Join(s.root, e.Name()), w.Day
			return s
		}
	}
	if len(entries) > 0 {
		c.Warn("the cache holds days of another server at this address; reading them anew")
	}
	return s
}

func readFingerprint(path string) (serverFingerprint, bool) {
	var w serverFingerprint
	raw, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(raw, &w) != nil {
		return w, false
	}
	return w, len(w.Pods) > 0 && len(w.Pods) <= maxFingerprintPods
}

// final tells whether a day is asked for whole and will not change any more.
func (s *serverCache) final(d series.Day, req metrics.UsageRequest) bool {
	return !d.Start().Before(req.Start) && !d.End().After(req.End) && !d.End().Add(settleTime).After(s.cache.Now())
}

func (s *serverCache) dayDir(d series.Day) string { return filepath.Join(s.dir, d.String()) }

// prefix begins the names of the files of a resource and step. Days in which DaemonSets are kept apart by groups serve
// whoever does not ask for groups as well, so their prefix begins with that of the others.
func (s *serverCache) prefix(req metrics.UsageRequest) string {
	p := fmt.Sprintf("%s-%ds-", req.Resource, int(req.Step.Seconds()))
	if s.grouped {
		p += "groups-"
	}
	return p
}

// load visits what is kept of a day and returns the namespaces that are not.
func (s *serverCache) load(d series.Day, req metrics.UsageRequest, visit visitDay) (missing []string) {
	if s.dir == "" {
		return req.Namespaces
	}
	entries, err := os.ReadDir(s.dayDir(d))
	if err != nil {
		return req.Namespaces // Most likely there is none.
	}
	missing = req.Namespaces
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, s.prefix(req)) || !strings.HasSuffix(name, daySuffix) || len(missing) == 0 {
			continue
		}
		path := filepath.Join(s.dayDir(d), name)
		want := dayHeader{identity: s.identity, resource: req.Resource, step: req.Step, day: d}
		covered, err := loadFile(path, want, missing, visit)
		if err != nil {
			s.warn(fmt.Sprintf("%s is ignored and read anew: %v", path, err))
			continue
		}
		missing = subtract(missing, covered)
	}
	return missing
}

func loadFile(path string, want dayHeader, namespaces []string, visit visitDay) (covered []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%d bytes: want at most %d", info.Size(), maxFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return decodeDay(raw, want, namespaces, visit)
}

// subtract keeps the order of all.
func subtract(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(ns string) bool { return slices.Contains(some, ns) })
}

// save keeps a day. Failing to is no error of the reading.
func (s *serverCache) save(d *dayUsage, req metrics.UsageRequest) {
	if len(s.source.Stats().Warnings) > 0 {
		s.warn("days are not kept in the cache: the server warned that its answers may be partial")
		return
	}
	if s.dir == "" {
		if len(d.pods) == 0 {
			return // Nothing tells whose day this is.
		}
		names := make([]string, len(d.pods))
		for i, p := range d.pods {
			names[i] = p.name
		}
		s.dir = filepath.Join(s.root, hashOf(d.day.String()+strings.Join(names, " ")))
	}
	if err := s.write(d, req); err != nil {
		s.warn(fmt.Sprintf("days are not kept in the cache: %v", err))
	}
}

func (s *serverCache) write(d *dayUsage, req metrics.UsageRequest) error {
	folder := s.dayDir(d.day)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	h := dayHeader{identity: s.identity, resource: req.Resource, step: req.Step, day: d.day}
	raw, err := encodeDay(h, req.Namespaces, d.profiles)
	if err != nil {
		return err
	}
	name := s.prefix(req) + hashOf(strings.Join(req.Namespaces, " ")) + daySuffix
	if err := writeAtomic(filepath.Join(folder, name), raw); err != nil {
		return err
	}
	if len(d.pods) == 0 || d.day < s.newest {
		return nil
	}
	w := serverFingerprint{Day: d.day}
	for _, p := range d.pods {
		w.Pods = append(w.Pods, p.name)
	}
	if raw, err = json.Marshal(w); err != nil {
		return fmt.Errorf("the witness of %v: %w", d.day, err)
	}
	s.newest = d.day
	return writeAtomic(filepath.Join(s.dir, fingerprintFile), raw)
}

// writeAtomic puts a file in its place when it is complete.
func writeAtomic(path string, raw []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (s *serverCache) warn(text string) {
	if !s.warned[text] {
		s.warned[text] = true
		s.cache.Warn(text)
	}
}

// hashOf is short enough for a name and long enough not to meet its like; files repeat what they are of.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// cacheFile is a file of the cache.
type cacheFile struct {
	path    string
	size    int64
	written time.Time
}

// Prune removes files that are older than MaxAge, then the oldest until MaxBytes are left, and what interrupted writers
// left behind. It touches nothing that the cache has not written.
func (c *Cache) Prune() error {
	files, dirs, err := c.listFiles(formatDir)
	if err != nil {
		return err
	}
	var errs []error
	for _, format := range oldFormats() {
		old, empty, err := c.listFiles(format)
		if err != nil {
			return err
		}
		dirs = append(dirs, empty...)
		for _, f := range old {
			errs = append(errs, ignoreNotExist(os.Remove(f.path)))
		}
	}
	slices.SortFunc(files, func(a, b cacheFile) int {
		return cmp.Or(b.written.Compare(a.written), strings.Compare(a.path, b.path))
	})
	now, total := c.Now(), int64(0)
	for _, f := range files {
		stale := strings.HasPrefix(filepath.Base(f.path), tempPrefix)
		if total += f.size; stale || now.Sub(f.written) > c.MaxAge || total > c.MaxBytes {
			total -= f.size
			errs = append(errs, ignoreNotExist(os.Remove(f.path)))
		}
	}
	for _, dir := range slices.Backward(dirs) {
		_ = os.Remove(dir) // Fails, as it should, where something is left in it.
	}
	return errors.Join(errs...)
}

// ignoreNotExist leaves out that another process was faster.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// listFiles lists the files of a format that the cache has written, and all directories.
func (c *Cache) listFiles(format string) (files []cacheFile, dirs []string, err error) {
	err = filepath.WalkDir(filepath.Join(c.Dir, format), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return ignoreNotExist(err) // Never used, or another process cleans as well.
		}
		if e.IsDir() {
			dirs = append(dirs, path)
			return nil
		}
		info, err := e.Info()
		if err == nil && c.isCacheFile(e.Name(), info.ModTime()) {
			files = append(files, cacheFile{path, info.Size(), info.ModTime()})
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("looking through the cache: %w", err)
	}
	return files, dirs, nil
}

// isCacheFile leaves out foreign files, and files that are being written.
func (c *Cache) isCacheFile(name string, written time.Time) bool {
	const writing = time.Hour
	return strings.HasSuffix(name, daySuffix) || name == fingerprintFile ||
		strings.HasPrefix(name, tempPrefix) && c.Now().Sub(written) > writing
}
