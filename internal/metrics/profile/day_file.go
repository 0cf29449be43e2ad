// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/checksum"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// dayFileMagic begins each file of the cache: magic and version. Then follow the header; each namespace with the length of its section; the
// sections, which list containers (those of DaemonSets by node group) with their profiles; and a CRC-32C of all of it. Numbers are varints,
// and texts and profiles are preceded by their length.
const dayFileMagic = "crane-day\x02"

// errInvalidFile means that a file is damaged or was not written by the cache.
var errInvalidFile = errors.New("not a whole file of this cache")

// dayHeader describes the content of a file. A file whose header differs from its name is not used.
type dayHeader struct {
	identity string
	resource metrics.UsageKind
	step     time.Duration
	day      series.Day
}

// containerDay is the profile of one container for one day.
type containerDay struct {
	key     container
	profile *rightsize.Profile
}

// encodeDay encodes the profiles of the containers in some namespaces; others are left out.
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
	return checksum.Append(out, 0), nil
}

func encodeSection(keys []container, profiles map[container]*rightsize.Profile) ([]byte, error) {
	slices.SortFunc(keys, container.compare)
	out := binary.AppendUvarint(nil, uint64(len(keys)))
	for _, key := range keys {
		blob, err := profiles[key].MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("profile of container %s of %s %s/%s: %w", key.name, key.kind, key.namespace, key.identity.name, err)
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

// decodeDay returns the containers of the given namespaces in a file, and the namespaces that the file covers. The error wraps errInvalidFile
// where the file is damaged or has another header.
func decodeDay(raw []byte, expected dayHeader, namespaces []string) (days []containerDay, covered []string, err error) {
	if len(raw) < len(dayFileMagic)+4 || string(raw[:len(dayFileMagic)]) != dayFileMagic {
		return nil, nil, fmt.Errorf("%w: it has another beginning", errInvalidFile)
	}

	body, err := checksum.Trim(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errInvalidFile, err)
	}

	// The file must be of the expected source and day: its name alone proves nothing, as files may be renamed or copied.
	r := &fileReader{rest: body[len(dayFileMagic):]}
	header := appendHeader(nil, expected)
	if !bytes.HasPrefix(r.rest, header) {
		return nil, nil, fmt.Errorf("%w: it is of another source, resource, step or day", errInvalidFile)
	}

	r.rest = r.rest[len(header):]
	names, lengths := r.contents()
	for i, ns := range names {
		section := r.take(lengths[i])
		if r.failed || !slices.Contains(namespaces, ns) {
			continue
		}

		covered = append(covered, ns)
		in, err := decodeSection(section, ns, expected.day)
		if err != nil {
			return nil, nil, err
		}

		days = append(days, in...)
	}

	if r.failed || len(r.rest) > 0 {
		return nil, nil, fmt.Errorf("%w: lengths do not add up", errInvalidFile)
	}

	return days, covered, nil
}

// decodeSection decodes the containers of a namespace.
func decodeSection(section []byte, namespace string, day series.Day) (days []containerDay, err error) {
	r := &fileReader{rest: section}
	for n := r.count(); n > 0 && !r.failed; n-- {
		kind := r.text()
		owner := r.text()
		name := r.text()
		group := r.text()
		blob := r.take(r.count())

		if r.failed {
			break
		}

		profile := rightsize.NewProfile()
		if err := profile.UnmarshalBinary(blob); err != nil {
			return nil, fmt.Errorf("%w: container %s of %s %s/%s: %w", errInvalidFile, name, kind, namespace, owner, err)
		}

		// A file covers one day, so a profile of another day means a damaged file.
		for _, d := range profile.Days() {
			if d.Day != day {
				return nil, fmt.Errorf("%w: container %s of %s %s/%s: a profile of %v", errInvalidFile, name, kind, namespace, owner, d.Day)
			}
		}

		days = append(days, containerDay{container{identity{namespace, kind, owner}, name, group}, profile})
	}

	if r.failed || len(r.rest) > 0 {
		return nil, fmt.Errorf("%w: namespace %s: lengths do not add up", errInvalidFile, namespace)
	}

	return days, nil
}

// fileReader reads values from a file. After the first failure it returns zero values.
type fileReader struct {
	rest   []byte
	failed bool
}

// contents reads the namespaces and the lengths of their sections.
func (r *fileReader) contents() (names []string, lengths []int) {
	for n := r.count(); n > 0 && !r.failed; n-- {
		names = append(names, r.text())
		lengths = append(lengths, r.count())
	}

	return names, lengths
}

// count reads a number of elements of at least one byte each, so at most the number of bytes left.
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
