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

	"crane.io/crane/internal/component/atomicfile"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// Cache stores the profiles of finished days in a directory, so that the next read requests only newer days. A file holds one resource of one
// day for some namespaces, with all their workloads. Files are written atomically; those that cannot be read are read from the source again.
// Several processes may share a directory.
//
// Below Dir, a directory for each identity of a source holds one for each server with that identity. The names of a few pods identify a
// server, for example behind a forwarded port.
type Cache struct {
	// Dir is created with permissions for its owner alone, as it contains the names of workloads.
	Dir string
	// MaxAge and MaxBytes bound the files that Prune keeps.
	MaxAge   time.Duration
	MaxBytes int64
	// Now returns the current time.
	Now func() time.Time
	// Warn receives a sentence about each failure of the cache; such failures never fail a read.
	Warn func(string)
}

// Defaults of a cache: an age above the windows of policies, and the size of about a month of 40,000 containers.
const (
	DefaultCacheAge   = 100 * 24 * time.Hour
	DefaultCacheBytes = 1 << 30
)

const (
	formatDir       = "v4"
	daySuffix       = ".day"
	fingerprintFile = "fingerprint.json"
	// maxFile bounds the size of a file, in bytes; a day of 100,000 containers is much smaller.
	maxFile = 512 << 20
)

// oldFormats returns the directories of formats that are no longer read.
func oldFormats() []string { return []string{"v1", "v2", "v3"} }

// serverFingerprint identifies a server seen before.
type serverFingerprint struct {
	Day  series.Day `json:"day"`
	Pods []string   `json:"pods"`
}

// serverCache is the part of a cache for one server.
type serverCache struct {
	cache    *Cache
	source   metrics.DayReader
	identity string
	// grouped selects days that hold DaemonSets by node group, reacting those that hold the effect of the reaction.
	grouped, reacting bool
	// dir is empty until the server is identified or a day with pods is saved.
	dir  string
	root string
	// newest is the day of the fingerprint in dir.
	newest series.Day
	// warned prevents repeated warnings.
	warned map[string]bool
}

// open finds the directory of a server. It returns nil without a cache, and where the server cannot be identified.
func (c *Cache) open(ctx context.Context, source metrics.DayReader, grouped, reacting bool) *serverCache {
	if c == nil {
		return nil
	}

	s := &serverCache{
		cache:    c,
		source:   source,
		identity: source.Identity(),
		grouped:  grouped,
		reacting: reacting,
		warned:   map[string]bool{},
	}

	s.root = filepath.Join(c.Dir, formatDir, hashOf(s.identity))
	entries, err := os.ReadDir(s.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Warn(fmt.Sprintf("the cache cannot be read: %v", err))
		return nil
	}

	// An address may be reused by another server. A directory is of this one if the server has more than half of the pods of its
	// fingerprint.
	for _, e := range entries {
		w, ok := readFingerprint(filepath.Join(s.root, e.Name(), fingerprintFile))
		if !e.IsDir() || !ok {
			continue
		}

		present, err := source.CountPods(ctx, w.Pods, w.Day.Start(), w.Day.End())
		if err != nil {
			c.Warn(fmt.Sprintf("the cache is not used, as the server cannot be identified: %v", err))
			return nil
		}

		if 2*present > len(w.Pods) {
			s.dir = filepath.Join(s.root, e.Name())
			s.newest = w.Day
			return s
		}
	}

	if len(entries) > 0 {
		c.Warn("the cache holds days of another server at this address; all days are read again")
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

// final reports whether a day is requested as a whole and no longer changes.
func (s *serverCache) final(d series.Day, req metrics.UsageRequest) bool {
	return !d.Start().Before(req.Start) && !d.End().After(req.End) && !d.End().Add(settleTime).After(s.cache.Now())
}

func (s *serverCache) dayDir(d series.Day) string { return filepath.Join(s.dir, d.String()) }

// prefix returns the prefix of the files of a resource and step. Days with node groups, or with the effect of the reaction, also serve
// requests without them, so their prefix begins with that of the others.
func (s *serverCache) prefix(req metrics.UsageRequest) string {
	p := fmt.Sprintf("%s-%ds-", req.Resource, int(req.Step.Seconds()))
	if s.grouped {
		p += "groups-"
	}
	if s.reacting && req.Resource == metrics.CPU {
		p += "reaction-"
	}

	return p
}

// load returns the cached profiles of a day and the namespaces that are not cached.
func (s *serverCache) load(d series.Day, req metrics.UsageRequest) (days []containerDay, missing []string) {
	missing = req.Namespaces
	if s.dir == "" {
		return nil, missing
	}

	entries, err := os.ReadDir(s.dayDir(d))
	if err != nil {
		return nil, missing // Most likely there is none.
	}

	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, s.prefix(req)) || !strings.HasSuffix(name, daySuffix) || len(missing) == 0 {
			continue
		}

		path := filepath.Join(s.dayDir(d), name)
		expected := dayHeader{
			identity: s.identity,
			resource: req.Resource,
			step:     req.Step,
			day:      d,
		}

		found, covered, err := loadFile(path, expected, missing)
		if err != nil {
			s.warn(fmt.Sprintf("%s is ignored and read again: %v", path, err))
			continue
		}

		days = append(days, found...)
		missing = subtract(missing, covered)
	}

	return days, missing
}

// loadFile reads and decodes a file.
func loadFile(path string, expected dayHeader, namespaces []string) (days []containerDay, covered []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}

	if info.Size() > maxFile {
		return nil, nil, fmt.Errorf("%d bytes: must be at most %d", info.Size(), maxFile)
	}

	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}

	return decodeDay(raw, expected, namespaces)
}

// subtract returns the elements of all that are not in some, in order.
func subtract(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(ns string) bool { return slices.Contains(some, ns) })
}

// save writes a day. A failure is a warning.
func (s *serverCache) save(d *dayUsage, req metrics.UsageRequest) {
	if len(s.source.Stats().Warnings) > 0 {
		s.warn("days are not cached: the server warned that its answers may be partial")
		return
	}

	if s.dir == "" {
		if len(d.pods) == 0 {
			return // No pod identifies the server.
		}

		names := make([]string, len(d.pods))
		for i, p := range d.pods {
			names[i] = p.name
		}
		s.dir = filepath.Join(s.root, hashOf(d.day.String()+strings.Join(names, " ")))
	}

	if err := s.write(d, req); err != nil {
		s.warn(fmt.Sprintf("days are not cached: %v", err))
	}
}

func (s *serverCache) write(d *dayUsage, req metrics.UsageRequest) error {
	folder := s.dayDir(d.day)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}

	h := dayHeader{
		identity: s.identity,
		resource: req.Resource,
		step:     req.Step,
		day:      d.day,
	}

	raw, err := encodeDay(h, req.Namespaces, d.profiles)
	if err != nil {
		return err
	}

	name := s.prefix(req) + hashOf(strings.Join(req.Namespaces, " ")) + daySuffix
	if err := atomicfile.Write(filepath.Join(folder, name), raw); err != nil {
		return err
	}

	// The newest complete day identifies the server best, since old samples are the first to be deleted.
	if len(d.pods) == 0 || d.day < s.newest {
		return nil
	}

	w := serverFingerprint{Day: d.day}
	for _, p := range d.pods {
		w.Pods = append(w.Pods, p.name)
	}

	if raw, err = json.Marshal(w); err != nil {
		return fmt.Errorf("the fingerprint of %v: %w", d.day, err)
	}

	s.newest = d.day
	return atomicfile.Write(filepath.Join(s.dir, fingerprintFile), raw)
}

func (s *serverCache) warn(text string) {
	if !s.warned[text] {
		s.warned[text] = true
		s.cache.Warn(text)
	}
}

// hashOf returns a hash of 16 characters for a file name. Files repeat the text in their header, which detects collisions.
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

// Prune removes files that are older than MaxAge, then the oldest until MaxBytes are left, and temporary files of
// interrupted writers. It keeps files that the cache has not written.
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

	now := c.Now()
	total := int64(0)
	for _, f := range files {
		stale := atomicfile.IsTemporary(f.path)
		if total += f.size; stale || now.Sub(f.written) > c.MaxAge || total > c.MaxBytes {
			total -= f.size
			errs = append(errs, ignoreNotExist(os.Remove(f.path)))
		}
	}

	for _, dir := range slices.Backward(dirs) {
		_ = os.Remove(dir) // Fails where the directory is not empty.
	}

	return errors.Join(errs...)
}

// ignoreNotExist ignores files that another process has removed.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return err
}

// listFiles returns the files of a format that the cache has written, and all directories.
func (c *Cache) listFiles(format string) (files []cacheFile, dirs []string, err error) {
	err = filepath.WalkDir(filepath.Join(c.Dir, format), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return ignoreNotExist(err) // The cache was never used, or another process prunes it too.
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
		return nil, nil, fmt.Errorf("listing the files of the cache: %w", err)
	}

	return files, dirs, nil
}

// isCacheFile reports whether the cache has written a file, and completed it.
func (c *Cache) isCacheFile(name string, written time.Time) bool {
	const maxWriteTime = time.Hour
	return strings.HasSuffix(name, daySuffix) || name == fingerprintFile ||
		atomicfile.IsTemporary(name) && c.Now().Sub(written) > maxWriteTime
}
