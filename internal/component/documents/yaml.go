// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
	yamlnode "sigs.k8s.io/yaml/goyaml.v3"

	"crane.io/crane/internal/component/termtext"
)

// YAML returns content as YAML with the field names of JSON. Characters that control a terminal or the direction of text are written as
// escapes in strings with double quotes, so that the values stay the same.
func YAML(content any) ([]byte, error) {
	encoded, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encoding YAML: %w", err)
	}

	// The parser of YAML rejects control characters that JSON allows in strings.
	text, err := yaml.JSONToYAML([]byte(escapeString(string(encoded))))
	if err != nil {
		return nil, fmt.Errorf("encoding YAML: %w", err)
	}

	if termtext.IsSafe(string(text)) {
		return text, nil
	}

	var root yamlnode.Node
	if err := yamlnode.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("encoding YAML: %w", err)
	}

	quoteUnsafe(&root)
	var quoted bytes.Buffer
	encoder := yamlnode.NewEncoder(&quoted)
	encoder.SetIndent(2)

	if err := encoder.Encode(&root); err != nil {
		return nil, fmt.Errorf("encoding YAML: %w", err)
	}

	return []byte(escapeString(quoted.String())), nil
}

// Comment returns text as one comment of YAML or of a shell.
func Comment(text string) string { return "# " + termtext.Line(text) + "\n" }

// quoteUnsafe sets double quotes for strings that need escapes.
func quoteUnsafe(node *yamlnode.Node) {
	if node.Kind == yamlnode.ScalarNode && !termtext.IsSafe(node.Value) {
		node.Style = yamlnode.DoubleQuotedStyle
	}

	for _, child := range node.Content {
		quoteUnsafe(child)
	}
}

// escapeString replaces unsafe characters by escapes of strings with double quotes: one of eight digits where JSON has two of four.
func escapeString(text string) string {
	if termtext.IsSafe(text) {
		return text
	}

	var b strings.Builder
	for _, r := range text {
		switch {
		case termtext.IsSafe(string(r)):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}

	return b.String()
}
