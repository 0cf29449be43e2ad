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

// malformedError is input that is not the JSON that it should be; reading again would not help.
type malformedError struct{ what string }

func (m *malformedError) Error() string { return m.what }

// scanner reads JSON as a stream of tokens with one small buffer. encoding/json would hold each value whole and cost
// several times the time and memory on answers of a million samples.
type scanner struct {
	r        io.Reader
	buf      []byte
	pos, end int
	read     int64
}

func newScanner(r io.Reader) *scanner {
	return &scanner{r: r, buf: make([]byte, 64<<10)}
}

// fill reads more and keeps nothing of what was consumed. It returns io.EOF only where the input ends.
func (s *scanner) fill() error {
	for range 100 {
		n, err := s.r.Read(s.buf)
		s.pos, s.end = 0, n
		s.read += int64(n)
		if n > 0 {
			return nil // an error beside data comes again
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

func (s *scanner) bad(format string, args ...any) error {
	at := s.read - int64(s.end-s.pos)
	return &malformedError{what: fmt.Sprintf(format, args...) + " at byte " + strconv.FormatInt(at, 10)}
}

// cut tells that the input ended in the middle, which may be the network's fault.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next consumes one byte, white space included.
func (s *scanner) next() (byte, error) {
	if s.pos == s.end {
		if err := s.fill(); err != nil {
			return 0, cut(err)
		}
	}
	c := s.buf[s.pos]
	s.pos++
	return c, nil
}

// peek returns the next byte that is not white space and leaves it there.
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
			return 0, cut(err)
		}
	}
}

func (s *scanner) expect(want byte) error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c != want {
		return s.bad("want %q, got %q", want, c)
	}
	s.pos++
	return nil
}

// more steps over the comma between two elements, or over the closing bracket, after which it returns false.
func (s *scanner) more(first bool, closing byte) (bool, error) {
	c, err := s.peek()
	switch {
	case err != nil:
		return false, err
	case c == closing:
		s.pos++
		return false, nil
	case first:
		return true, nil
	case c != ',':
		return false, s.bad("want %q or %q, got %q", ',', closing, c)
	}
	s.pos++
	return true, nil
}

// object calls visit for each key; visit consumes the value.
func (s *scanner) object(visit func(key string) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	var scratch []byte
	for first := true; ; first = false {
		ok, err := s.more(first, '}')
		if err != nil || !ok {
			return err
		}
		if scratch, err = s.str(scratch[:0]); err != nil {
			return err
		}
		key := string(scratch)
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := visit(key); err != nil {
			return err
		}
	}
}

// array calls visit for each element; visit consumes it.
func (s *scanner) array(visit func() error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	for first := true; ; first = false {
		ok, err := s.more(first, ']')
		if err != nil || !ok {
			return err
		}
		if err := visit(); err != nil {
			return err
		}
	}
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
				return dst, cut(err)
			}
		}
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

// escape reads what follows a backslash.
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

// unicode reads the digits of a \u escape and, for the first half of a pair, the second escape. Half a pair alone
// becomes the replacement character, as in encoding/json.
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
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return utf8.AppendRune(dst, pair), nil
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
		r = low
	}
	return utf8.AppendRune(dst, r), nil
}

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
					return dst, s.bad("want a value, got %q", c)
				}
				return dst, nil
			case '"', '[', '{', ':':
				return dst, s.bad("want a number, got %q", c)
			default:
				dst = append(dst, c)
				s.pos++
			}
		}
		if len(dst)-start > maxNumber {
			return dst, s.bad("a number of more than %d digits", maxNumber)
		}
		if err := s.fill(); err != nil {
			return dst, cut(err)
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
		return s.object(func(string) error { return s.skip(depth + 1) })
	case '[':
		return s.array(func() error { return s.skip(depth + 1) })
	case '"':
		_, err := s.str(nil)
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
