// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
)

// streamedList is a response whose items are encoded one by one, so that it needs the memory of one item.
type streamedList struct {
	// frame is the value without its items, which are null in its JSON.
	frame any
	items reflect.Value
}

// newStreamedList returns the items of a slice, or of a list of the Kubernetes API; ok is false for other values.
func newStreamedList(data any) (list streamedList, ok bool) {
	v := reflect.ValueOf(data)
	if v.Kind() == reflect.Slice {
		return streamedList{items: v}, true
	}
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return streamedList{}, false
	}

	items := v.Elem().FieldByName("Items")
	if !items.IsValid() || items.Kind() != reflect.Slice {
		return streamedList{}, false
	}

	frame := reflect.New(v.Elem().Type()) // A shallow copy: the list may belong to a cache.
	frame.Elem().Set(v.Elem())
	frame.Elem().FieldByName("Items").SetZero()

	return streamedList{frame: frame.Interface(), items: items}, true
}

// write encodes the list twice: once to learn its size, since a response that has begun cannot become an error, and once to send it.
func (l streamedList) write(w http.ResponseWriter) error {
	if err := l.encode(&limitedWriter{remaining: maxAnswer}); err != nil {
		return err
	}

	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_ = l.encode(w) // The client has disconnected.

	return nil
}

func (l streamedList) encode(w io.Writer) error {
	encoded, err := json.Marshal(envelope{Data: l.frame})
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}

	// The envelope is encoded without items, and its null is the place of the list.
	null := []byte("null")
	if l.frame != nil {
		null = []byte(`"items":null`)
	}

	before, after, found := bytes.Cut(encoded, null)
	if !found {
		return fmt.Errorf("writing the answer: no items in %s", encoded)
	}

	if l.frame != nil {
		before = append(bytes.Clone(before), `"items":`...)
	}

	for i := range l.items.Len() {
		item, err := json.Marshal(l.items.Index(i).Addr().Interface())
		if err != nil {
			return fmt.Errorf("writing the answer: %w", err)
		}

		separator := []byte(",")
		if i == 0 {
			separator = append(bytes.Clone(before), '[')
		}

		if _, err := w.Write(append(separator, item...)); err != nil {
			return fmt.Errorf("writing the answer: %w", err)
		}
	}

	end := append([]byte("]"), after...)
	if l.items.Len() == 0 {
		end = append(append(bytes.Clone(before), "[]"...), after...)
	}

	if _, err := w.Write(append(end, '\n')); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}

	return nil
}

// limitedWriter counts bytes.
type limitedWriter struct{ remaining int }

// Write implements io.Writer.
func (w *limitedWriter) Write(p []byte) (int, error) {
	w.remaining -= len(p)
	if w.remaining < 0 {
		return 0, errTooLong
	}

	return len(p), nil
}
