// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds on hostile input.
const (
	maxDepth  = 64
	maxString = 1 << 20
	maxNumber = 64
)

// malformedError means that a response is not valid JSON of the API. A retry does not help.
type malformedError struct{ what string }

func (m *malformedError) Error() string { return m.what }

// scanner reads JSON as a stream of tokens through one small buffer. encoding/json would hold each value as a whole and cost several times
// the time and memory on responses of a million samples.
type scanner struct {
	r        io.Reader
	buf      []byte
	pos, end int
	read     int64
	scratch  []byte // the last key
}

func newScanner(r io.Reader) scanner {
	return scanner{r: r, buf: make([]byte, 64<<10)}
}

// fill reads the next bytes into the buffer. It returns io.EOF only at the end of the input.
func (s *scanner) fill() error {
	for range 100 {
		n, err := s.r.Read(s.buf)
		s.pos = 0
		s.end = n
		s.read += int64(n)

		if n > 0 {
			return nil // The reader repeats an error that it returned with data.
		}

		if err != nil {
			return err
		}
	}

	return io.ErrNoProgress
}

// bad returns a malformedError at the current position.
func (s *scanner) bad(format string, args ...any) error {
	at := s.read - int64(s.end-s.pos)
	return &malformedError{what: fmt.Sprintf(format, args...) + " at byte " + strconv.FormatInt(at, 10)}
}

// unexpectedEnd marks the end of the input within a value, which the network may have caused.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}

	return err
}

// next consumes one byte, which may be white space.
func (s *scanner) next() (byte, error) {
	if s.pos == s.end {
		if err := s.fill(); err != nil {
			return 0, unexpectedEnd(err)
		}
	}

	c := s.buf[s.pos]
	s.pos++
	return c, nil
}

// peek returns the next byte that is not white space, without consuming it.
func (s *scanner) peek() (byte, error) {
	for {
		for s.pos < s.end {
			switch c := s.buf[s.pos]; c {
			case ' ', '\t', '\n', '\r':
				s.pos++
			default:
				return c, nil
			}
		}

		if err := s.fill(); err != nil {
			return 0, unexpectedEnd(err)
		}
	}
}

// expect consumes a byte after white space.
func (s *scanner) expect(expected byte) error {
	c, err := s.peek()
	if err != nil {
		return err
	}

	if c != expected {
		return s.bad("expected %q, got %q", expected, c)
	}

	s.pos++
	return nil
}

// more consumes the comma between two elements, or the closing bracket, for which it returns false.
func (s *scanner) more(first bool, endBracket byte) (bool, error) {
	c, err := s.peek()
	switch {
	case err != nil:
		return false, err
	case c == endBracket:
		s.pos++
		return false, nil
	case first:
		return true, nil
	case c != ',':
		return false, s.bad("expected %q or %q, got %q", ',', endBracket, c)
	}

	s.pos++
	return true, nil
}

// openOrNull consumes an opening bracket, or null, for which it returns false.
func (s *scanner) openOrNull(bracket byte) (bool, error) {
	c, err := s.peek()
	switch {
	case err != nil:
		return false, err
	case c == bracket:
		s.pos++
		return true, nil
	case c == 'n':
		return false, s.skip(0)
	}

	return false, s.bad("expected %q, got %q", bracket, c)
}

// key reads the next key of an open object and the colon after it. ok is false after the closing bracket. The key is valid until the next
// call.
func (s *scanner) key(first bool) (key []byte, ok bool, err error) {
	if ok, err = s.more(first, '}'); err != nil || !ok {
		return nil, false, err
	}

	if s.scratch, err = s.str(s.scratch[:0]); err != nil {
		return nil, false, err
	}

	return s.scratch, true, s.expect(':')
}

// str appends a string, without its quotes and escapes, to dst.
func (s *scanner) str(dst []byte) ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return dst, err
	}

	start := len(dst)
	for {
		if s.pos == s.end {
			if err := s.fill(); err != nil {
				return dst, unexpectedEnd(err)
			}
		}

		// Most of a string is copied in one piece: up to its end, an escape or the end of the buffer.
		i := s.pos
		for i < s.end && s.buf[i] != '"' && s.buf[i] != '\\' && s.buf[i] >= ' ' {
			i++
		}

		dst = append(dst, s.buf[s.pos:i]...)
		s.pos = i
		if len(dst)-start > maxString {
			return dst, s.bad("a string of more than %d bytes", maxString)
		}

		if i == s.end {
			continue
		}

		s.pos++
		switch s.buf[i] {
		case '"':
			return dst, nil
		case '\\':
			var err error
			if dst, err = s.escape(dst); err != nil {
				return dst, err
			}

		default:
			return dst, s.bad("control character %#x in a string", s.buf[i])
		}
	}
}

// escape reads the rest of an escape sequence after the backslash.
func (s *scanner) escape(dst []byte) ([]byte, error) {
	c, err := s.next()
	if err != nil {
		return dst, err
	}

	switch c {
	case '"', '\\', '/':
		return append(dst, c), nil
	case 'b':
		return append(dst, '\b'), nil
	case 'f':
		return append(dst, '\f'), nil

	case 'n':
		return append(dst, '\n'), nil
	case 'r':
		return append(dst, '\r'), nil
	case 't':
		return append(dst, '\t'), nil
	case 'u':
		return s.unicode(dst)
	}

	return dst, s.bad("escape \\%c in a string", c)
}

// unicode reads the digits of a \u escape and, for the first half of a surrogate pair, the second escape. A lone surrogate becomes the
// replacement character, as in encoding/json.
func (s *scanner) unicode(dst []byte) ([]byte, error) {
	r, err := s.hex4()
	if err != nil {
		return dst, err
	}

	for utf16.IsSurrogate(r) {
		if c, err := s.next(); err != nil {
			return dst, err
		} else if c != '\\' {
			s.pos--
			break
		}

		if c, err := s.next(); err != nil {
			return dst, err
		} else if c != 'u' {
			s.pos--
			return s.escape(utf8.AppendRune(dst, utf8.RuneError))
		}

		low, err := s.hex4()
		if err != nil {
			return dst, err
		}

		// Without a second half, the first becomes the replacement character, and the other may begin a pair of its own.
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return utf8.AppendRune(dst, pair), nil
		}

		dst = utf8.AppendRune(dst, utf8.RuneError)
		r = low
	}

	return utf8.AppendRune(dst, r), nil
}

// hex4 reads four hexadecimal digits.
func (s *scanner) hex4() (rune, error) {
	var r rune
	for range 4 {
		c, err := s.next()
		if err != nil {
			return 0, err
		}

		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, s.bad("digit %q in a \\u escape", c)
		}
	}

	return r, nil
}

// token appends a number or literal, up to the next delimiter, to dst.
func (s *scanner) token(dst []byte) ([]byte, error) {
	if _, err := s.peek(); err != nil {
		return dst, err
	}

	start := len(dst)
	for {
		for s.pos < s.end {
			switch c := s.buf[s.pos]; c {
			case ',', ']', '}', ' ', '\t', '\n', '\r':
				if len(dst) == start {
					return dst, s.bad("expected a value, got %q", c)
				}

				return dst, nil

			case '"', '[', '{', ':':
				return dst, s.bad("expected a number, got %q", c)
			default:
				dst = append(dst, c)
				s.pos++
			}
		}

		// A number may continue beyond the buffer; the bound stops one without an end.
		if len(dst)-start > maxNumber {
			return dst, s.bad("a number of more than %d digits", maxNumber)
		}

		if err := s.fill(); err != nil {
			return dst, unexpectedEnd(err)
		}
	}
}

// skip consumes a value of any type.
func (s *scanner) skip(depth int) error {
	c, err := s.peek()
	if err != nil {
		return err
	}

	if depth > maxDepth {
		return s.bad("nesting deeper than %d", maxDepth)
	}

	switch c {
	case '{':
		s.pos++
		for first := true; ; first = false {
			if _, ok, err := s.key(first); err != nil || !ok {
				return err
			}

			if err := s.skip(depth + 1); err != nil {
				return err
			}
		}

	case '[':
		s.pos++
		for first := true; ; first = false {
			if ok, err := s.more(first, ']'); err != nil || !ok {
				return err
			}

			if err := s.skip(depth + 1); err != nil {
				return err
			}
		}

	case '"':
		s.scratch, err = s.str(s.scratch[:0])
		return err
	}

	tok, err := s.token(nil)
	if err != nil {
		return err
	}

	if !json.Valid(tok) {
		return s.bad("%q is not JSON", tok)
	}

	return nil
}
