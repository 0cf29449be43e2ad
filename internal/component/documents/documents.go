// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package documents writes values as indented JSON and as YAML.
package documents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// WriteJSON writes value as indented JSON.
func WriteJSON(w io.Writer, value any) error {
	text, err := IndentJSON("", value)
	if err != nil {
		return err
	}

	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}

	return nil
}

// IndentJSON returns value as indented JSON without a final newline; prefix starts each line but the first.
func IndentJSON(prefix string, value any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent(prefix, "  ")
	enc.SetEscapeHTML(false)

	if err := enc.Encode(value); err != nil {
		return nil, fmt.Errorf("encoding JSON: %w", err)
	}

	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// WriteYAML writes head and then content as YAML.
func WriteYAML(w io.Writer, head string, content any) error {
	text, err := YAML(content)
	if err != nil {
		return err
	}

	if _, err := io.WriteString(w, head+string(text)); err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}

	return nil
}
