// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package termtext

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"unicode/utf8"
)

// Style sequences of WriteStyled.
const (
	Green  = "\x1b[32m"
	Yellow = "\x1b[33m"
	Faint  = "\x1b[2m"
	Bold   = "\x1b[1m"
	Reset  = "\x1b[0m"
)

// style matches the style sequences.
var style = regexp.MustCompile(`\x1b\[(?:0|1|2|32|33)m`)

// noFile is the file descriptor of a Writer whose underlying writer is not a file.
const noFile = ^uintptr(0)

// Writer escapes what it writes. It may be used by several goroutines.
type Writer struct {
	mu  sync.Mutex
	out io.Writer
	// partial is the begin of a character whose other bytes have not been written yet.
	partial []byte
}

// NewWriter returns a Writer to out, which is out itself if that is one.
func NewWriter(out io.Writer) *Writer {
	if w, ok := out.(*Writer); ok {
		return w
	}

	return &Writer{out: out}
}

// Write writes text with Escape.
func (w *Writer) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	all := slices.Concat(w.partial, text)
	end := len(all) - incompleteSuffix(all)
	w.partial = append([]byte(nil), all[end:]...)

	if _, err := io.WriteString(w.out, Escape(string(all[:end]))); err != nil {
		return 0, err
	}

	return len(text), nil
}

// incompleteSuffix returns the length of an incomplete character at the end of text.
func incompleteSuffix(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		suffix := text[len(text)-n:]
		if utf8.RuneStart(suffix[0]) {
			if utf8.FullRune(suffix) {
				return 0
			}

			return n
		}
	}

	return 0
}

// Fd returns the file descriptor of the underlying file, so that a terminal is recognized.
func (w *Writer) Fd() uintptr {
	if f, ok := w.out.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}

	return noFile
}

// Raw returns the writer below a Writer, for binary output.
func Raw(out io.Writer) io.Writer {
	if w, ok := out.(*Writer); ok {
		return w.out
	}

	return out
}

// WriteStyled writes text with Escape that keeps style sequences. Text from outside in it is escaped by the caller.
func WriteStyled(out io.Writer, text string) error {
	w := NewWriter(out)
	w.mu.Lock()
	defer w.mu.Unlock()

	var styled []byte
	position := 0
	for _, match := range style.FindAllStringIndex(text, -1) {
		styled = append(styled, Escape(text[position:match[0]])...)
		styled = append(styled, text[match[0]:match[1]]...)
		position = match[1]
	}

	styled = append(styled, Escape(text[position:])...)
	_, err := w.out.Write(styled)
	return err
}

// EraseLine overwrites the status line of a terminal, which has width columns, with spaces.
func EraseLine(out io.Writer, width int) {
	fmt.Fprintf(Raw(out), "\r%*s\r", width, "")
}

// Fprintf is fmt.Fprintf whose arguments are each one line: text in them is escaped with Line, but that of type Trusted with Escape.
func Fprintf(out io.Writer, format string, args ...any) (int, error) {
	return fmt.Fprintf(out, format, lines(args)...)
}

// Fprintln is fmt.Fprintln with arguments as in Fprintf.
func Fprintln(out io.Writer, args ...any) (int, error) {
	return fmt.Fprintln(out, lines(args)...)
}

// PrintError prints an error after the name of the program; further lines of the error are indented.
func PrintError(out io.Writer, name string, err error) {
	fmt.Fprintf(out, "%s: %s\n", name, Indent(err.Error()))
}

func lines(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = Value(arg)
	}

	return out
}

// Value returns a value whose text is one line: numbers as they are, other values as escaped text. Styled and Trusted text keeps its
// style sequences and line breaks.
func Value(value any) any {
	switch v := value.(type) {
	case nil:
		return v
	case Styled:
		return string(v)
	case Trusted:
		return Escape(string(v))
	case []byte:
		return Line(string(v))
	}

	// The text of a number is that of the program, also where its type has a method String.
	switch reflect.TypeOf(value).Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		return value
	default:
		return Line(fmt.Sprint(value))
	}
}
