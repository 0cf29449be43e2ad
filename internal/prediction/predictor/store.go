// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"crane.io/crane/internal/component/atomicfile"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/checksum"
)

const (
	// storeVersion is part of each file's name and header. Files of earlier versions are removed, and their series are read again from the
	// source. Those of later versions stay as they are, for the newer craned. It also increases when the encoding of a model changes: craned
	// before version 4 replaces a file whose header it can read and whose model it cannot.
	storeVersion = 4
	storeSuffix  = ".v4.ckpt"
	// A file is storeMagic, the version, the encoded checkpoint and the CRC-32 of all three. Files before version 3 have no header.
	storeMagic = "crane-forecast\n"
	headerSize = len(storeMagic) + 4
	// maxFile is the maximum size of a file in bytes: 50 series of samples.
	maxFile = 64 << 20
)

// store keeps one file per entry in a directory. A nil store keeps nothing.
type store struct {
	dir string
	// maxBytes bounds the size of all files; total is their size since measure. Predictor.saving guards it.
	maxBytes, total int64
}

func openStore(dir string, maxBytes int64) (*store, error) {
	if dir == "" {
		return nil, nil
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the state directory: %w", err)
	}

	return &store{dir: dir, maxBytes: maxBytes}, nil
}

func (s *store) file(key Key) string { return filepath.Join(s.dir, key.String()+storeSuffix) }

func (s *store) remove(keys ...Key) {
	if s == nil {
		return
	}

	for _, key := range keys {
		// prune removes a file that could not be removed here.
		_ = os.Remove(s.file(key))
	}
}

// checkpoint is the content of a file: one entry.
type checkpoint struct {
	Query  Query
	Until  time.Time
	Tracks []trackCheckpoint
}

type trackCheckpoint struct {
	Labels      metrics.Labels
	Model       []byte
	First, Last time.Time
	Score       score
	Ledger      ledgerCheckpoint
	// Cells and Days are the reference without its half hour in progress.
	Cells [referenceDays][referenceSlots][2]float32
	Days  [referenceDays]int32
}

type ledgerCheckpoint struct {
	Start         time.Time
	Step          time.Duration
	Median, Upper []float32
}

// write replaces a file atomically: after a crash the old file remains.
func (s *store) write(key Key, c checkpoint) error {
	body := bytes.NewBuffer(binary.LittleEndian.AppendUint32([]byte(storeMagic), storeVersion))
	if err := gob.NewEncoder(body).Encode(c); err != nil {
		return fmt.Errorf("encoding the checkpoint of %s: %w", c.Query, err)
	}

	content := checksum.Append(body.Bytes(), 0)
	growth := int64(len(content))
	if old, err := os.Stat(s.file(key)); err == nil {
		growth -= old.Size()
	}

	if s.total+growth > s.maxBytes {
		return fmt.Errorf("writing the checkpoint of %s: all checkpoints would have more than %d MiB", c.Query, s.maxBytes>>20)
	}

	if err := atomicfile.Write(s.file(key), content); err != nil {
		return fmt.Errorf("writing the checkpoint of %s: %w", c.Query, err)
	}

	s.total += growth
	return nil
}

// measure reads the total size of the files in the directory.
func (s *store) measure() error {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("measuring checkpoints: %w", err)
	}

	s.total = 0
	for _, f := range files {
		if info, err := f.Info(); err == nil && info.Mode().IsRegular() { // Others were removed meanwhile.
			s.total += info.Size()
		}
	}

	return nil
}

var errCheckpoint = errors.New("unusable checkpoint")

// read returns fs.ErrNotExist if there is no file.
func (s *store) read(key Key) (checkpoint, error) {
	info, err := os.Stat(s.file(key))
	if err != nil {
		return checkpoint{}, err
	}

	if info.Size() > maxFile {
		return checkpoint{}, fmt.Errorf("%w: %d bytes", errCheckpoint, info.Size())
	}

	content, err := os.ReadFile(s.file(key))
	if err != nil {
		return checkpoint{}, err
	}

	version, err := formatVersion(content)
	if err != nil {
		return checkpoint{}, err
	}

	if version != storeVersion {
		return checkpoint{}, fmt.Errorf("%w: version %d is not %d", errCheckpoint, version, storeVersion)
	}

	// The version is compared before the checksum, because other versions may end differently.
	body, err := checksum.Trim(content)
	if err != nil || len(body) < headerSize {
		return checkpoint{}, fmt.Errorf("%w: %w", errCheckpoint, cmp.Or(err, checksum.ErrMismatch))
	}

	var c checkpoint
	if err := gob.NewDecoder(bytes.NewReader(body[headerSize:])).Decode(&c); err != nil {
		return checkpoint{}, fmt.Errorf("%w: %w", errCheckpoint, err)
	}

	return c, nil
}

// formatVersion returns the version in the header of a file.
func formatVersion(content []byte) (uint32, error) {
	if len(content) < headerSize || string(content[:len(storeMagic)]) != storeMagic {
		return 0, fmt.Errorf("%w: it has no header", errCheckpoint)
	}

	return binary.LittleEndian.Uint32(content[len(storeMagic):]), nil
}

// isNewer reports whether a newer version wrote the file. A file without a header is corrupt or of an earlier version.
func (s *store) isNewer(name string) bool {
	if !strings.HasSuffix(name, ".ckpt") || strings.HasSuffix(name, storeSuffix) {
		return false
	}

	f, err := os.Open(filepath.Join(s.dir, name))
	if err != nil {
		return false
	}
	defer f.Close()

	header := make([]byte, headerSize)
	if _, err := io.ReadFull(f, header); err != nil {
		return false
	}

	version, err := formatVersion(header)
	return err == nil && version > storeVersion
}

// newer returns the number of files of newer versions.
func (s *store) newer() (int, error) {
	if s == nil {
		return 0, nil
	}

	files, err := os.ReadDir(s.dir)
	if err != nil {
		return 0, fmt.Errorf("reading checkpoints: %w", err)
	}

	n := 0
	for _, f := range files {
		if s.isNewer(f.Name()) {
			n++
		}
	}

	return n, nil
}

// prune removes the files whose keys are not in known, except those of newer versions.
func (s *store) prune(requested map[string]bool) error {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("pruning checkpoints: %w", err)
	}

	var errs []error
	for _, f := range files {
		name := f.Name()
		ours := strings.HasSuffix(name, ".ckpt") || strings.HasSuffix(name, ".ckpt.part") || atomicfile.IsTemporary(name)
		if f.IsDir() || !ours || requested[strings.TrimSuffix(name, storeSuffix)] && strings.HasSuffix(name, storeSuffix) || s.isNewer(name) {
			continue
		}

		if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}
