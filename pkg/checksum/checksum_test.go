// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package checksum

import (
	"bytes"
	"errors"
	"testing"
)

// TestTrim checks that content is returned as it was appended to, and that each flipped bit and each shortening is found.
func TestTrim(t *testing.T) {
	stored := Append([]byte("header and content"), len("header "))
	stored = stored[len("header "):]

	body, err := Trim(stored)
	if err != nil || !bytes.Equal(body, []byte("and content")) {
		t.Fatalf("Trim(Append(x)) = %q, %v, want x", body, err)
	}

	for bit := range 8 * len(stored) {
		damaged := bytes.Clone(stored)
		damaged[bit/8] ^= 1 << (bit % 8)
		if _, err := Trim(damaged); !errors.Is(err, ErrMismatch) {
			t.Errorf("Trim with bit %d flipped: error %v, want %v", bit, err, ErrMismatch)
		}
	}

	for length := range stored {
		if _, err := Trim(stored[:length]); !errors.Is(err, ErrMismatch) {
			t.Errorf("Trim of the first %d bytes: error %v, want %v", length, err, ErrMismatch)
		}
	}
}

// TestCastagnoli checks the check value of CRC-32C (RFC 3720, appendix B.4: 32 bytes of zeros).
func TestCastagnoli(t *testing.T) {
	if got := Castagnoli(make([]byte, 32)); got != 0x8a9136aa {
		t.Errorf("Castagnoli(32 zeros) = %#x, want 0x8a9136aa", got)
	}
}
