// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checksum detects damage to bytes that Crane stores. It does not protect against an attacker.
package checksum

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// Size is the number of bytes that Append adds.
const Size = crc32.Size

// ErrMismatch says that bytes do not end with their checksum.
var ErrMismatch = errors.New("the checksum does not match")

// Castagnoli returns the CRC-32C of content, for formats that store the checksum apart from the content.
func Castagnoli(content []byte) uint32 {
	return crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))
}

// Append appends the CRC-32 (IEEE) of out[begin:] in little-endian order.
func Append(out []byte, begin int) []byte {
	return binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(out[begin:]))
}

// Trim returns content without the checksum that Append put at its end, or ErrMismatch.
func Trim(content []byte) ([]byte, error) {
	if len(content) < Size {
		return nil, ErrMismatch
	}

	body := content[:len(content)-Size]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(content[len(body):]) {
		return nil, ErrMismatch
	}

	return body, nil
}
