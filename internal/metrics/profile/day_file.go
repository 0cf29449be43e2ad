// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// A file of the cache: magic and version; what it is of; each namespace with the length of its section; the sections, a
// list of containers, those of DaemonSets by the group of their nodes, with their profiles; a CRC-32C of all before it. Texts and numbers are varints with what they count.
const dayFileMagic = "crane-day\x02"

// errInvalidFile tells that a file is not, or is not wholly, what the cache wrote.
var errInvalidFile = errors.New("not a whole file of this cache")

// dayHeader says what a file is of. A file that says otherwise than its name is not used.
type dayHeader struct {
	identity string
	resource metrics.Resource
	step     time.Duration
	day      series.Day
}

// visitDay takes the sketch of one container's day.
type visitDay func(key container, day *rightsize.Profile)

func checksum(raw []byte) uint32 { return crc32.Checksum(raw, crc32.MakeTable(crc32.Castagnoli)) }

// encodeDay writes what the containers of some namespaces used. What lies in other namespaces is left out.
func encodeDay(h dayHeader, namespaces []string, profiles map[container]*rightsize.Profile) ([]byte, error) {
	byNamespace := map[string][]container{}
	for key := range profiles {
		byNamespace[key.namespace] = append(byNamespace[key.namespace], key)
	}
	out := appendHeader([]byte(dayFileMagic), h)
	out = binary.AppendUvarint(out, uint64(len(namespaces)))
	var sections []byte
	for _, ns := range namespaces {
		section, err := encodeSection(byNamespace[ns], profiles)
		if err != nil {
			return nil, err
		}
		out = appendText(out, ns)
		out = binary.AppendUvarint(out, uint64(len(section)))
		sections = append(sections, section...)
	}
	out = append(out, sections...)
	return appendChecksum(out), nil
}

func appendChecksum(out []byte) []byte { return binary.LittleEndian.AppendUint32(out, checksum(out)) }

func encodeSection(keys []container, profiles map[container]*rightsize.Profile) ([]byte, error) {
	slices.SortFunc(keys, container.compare)
	out := binary.AppendUvarint(nil, uint64(len(keys)))
	for _, key := range keys {
		blob, err := profiles[key].MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("sketch of container %s of %s %s/%s: %w", key.name, key.kind, key.namespace, key.identity.name, err)
		}
		out = appendText(appendText(appendText(appendText(out, key.kind), key.identity.name), key.name), key.group)
		out = binary.AppendUvarint(out, uint64(len(blob)))
		out = append(out, blob...)
	}
	return out, nil
}

// compare orders containers within a namespace.
func (c container) compare(o container) int {
	return cmp.Or(cmp.Compare(c.kind, o.kind), cmp.Compare(c.identity.name, o.identity.name), cmp.Compare(c.name, o.name),
		cmp.Compare(c.group, o.group))
}

func appendHeader(out []byte, h dayHeader) []byte {
	out = appendText(appendText(out, h.identity), string(h.resource))
	out = binary.AppendVarint(out, int64(h.step))
	return binary.AppendVarint(out, int64(h.day))
}

func appendText(out []byte, text string) []byte {
	return append(binary.AppendUvarint(out, uint64(len(text))), text...)
}

// decodeDay visits the containers of those of the namespaces that the file holds, and returns these. Nothing is visited
// on an error, which wraps errInvalidFile where the file is damaged or of something else.
func decodeDay(raw []byte, want dayHeader, namespaces []string, visit visitDay) (covered []string, err error) {
	if len(raw) < len(dayFileMagic)+4 || string(raw[:len(dayFileMagic)]) != dayFileMagic {
		return nil, fmt.Errorf("%w: it begins otherwise", errInvalidFile)
	}
	body := raw[:len(raw)-4]
	if checksum(body) != binary.LittleEndian.Uint32(raw[len(body):]) {
		return nil, fmt.Errorf("%w: the checksum does not match", errInvalidFile)
	}
	r := &fileReader{rest: body[len(dayFileMagic):]}
	expected := appendHeader(nil, want)
	if !bytes.HasPrefix(r.rest, expected) {
		return nil, fmt.Errorf("%w: it is of another source, resource, step or day", errInvalidFile)
	}
	r.rest = r.rest[len(expected):]
	names, lengths := r.contents()
	type sketch struct {
		key container
		day *rightsize.Profile
	}
	var found []sketch
	for i, ns := range names {
		section := r.take(lengths[i])
		if r.failed || !slices.Contains(namespaces, ns) {
			continue
		}
		covered = append(covered, ns)
		err := decodeSection(section, ns, want.day, func(key container, day *rightsize.Profile) {
			found = append(found, sketch{key, day})
		})
		if err != nil {
			return nil, err
		}
	}
	if r.failed || len(r.rest) > 0 {
		return nil, fmt.Errorf("%w: lengths do not add up", errInvalidFile)
	}
	for _, f := range found {
		visit(f.key, f.day)
	}
	return covered, nil
}

func decodeSection(section []byte, namespace string, day series.Day, visit visitDay) error {
	r := &fileReader{rest: section}
	for n := r.count(); n > 0 && !r.failed; n-- {
		kind, owner, name, group := r.text(), r.text(), r.text(), r.text()
		blob := r.take(r.count())
		if r.failed {
			break
		}
		profile := rightsize.NewProfile()
		if err := profile.UnmarshalBinary(blob); err != nil {
			return fmt.Errorf("%w: container %s of %s %s/%s: %w", errInvalidFile, name, kind, namespace, owner, err)
		}
		for _, d := range profile.Days() {
			if d.Day != day {
				return fmt.Errorf("%w: container %s of %s %s/%s: a sketch of %v", errInvalidFile, name, kind, namespace, owner, d.Day)
			}
		}
		visit(container{identity{namespace, kind, owner}, name, group}, profile)
	}
	if r.failed || len(r.rest) > 0 {
		return fmt.Errorf("%w: namespace %s: lengths do not add up", errInvalidFile, namespace)
	}
	return nil
}

// fileReader takes values off a file; after the first failure it returns zeros and stays bad.
type fileReader struct {
	rest   []byte
	failed bool
}

func (r *fileReader) contents() (names []string, lengths []int) {
	for n := r.count(); n > 0 && !r.failed; n-- {
		names = append(names, r.text())
		lengths = append(lengths, r.count())
	}
	return names, lengths
}

// count reads a number of bytes or of things of at least a byte: no more than there are bytes left.
func (r *fileReader) count() int {
	v, n := binary.Uvarint(r.rest)
	if r.failed || n <= 0 || v > uint64(len(r.rest)) {
		r.failed = true
		return 0
	}
	r.rest = r.rest[n:]
	return int(v)
}

func (r *fileReader) take(n int) []byte {
	if r.failed || n > len(r.rest) {
		r.failed = true
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *fileReader) text() string { return string(r.take(r.count())) }
