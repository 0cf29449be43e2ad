// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const redacted = "REDACTED"

// secretWords matches names of flags and keys whose value is a secret.
//
//nolint:gosec // matches names of settings and contains no secret
const secretWords = `(?i:[\w.-]*(?:password|passwd|passphrase|pass\b|pwd|token|secret|credential|authorization|cookie|header|key-data|(?:access|api|private)[-_]?key)[\w.-]*)`

// quotedValue matches a string in quotes, in JSON, in YAML, or in JSON that is itself a string of a log line.
const quotedValue = `\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*'`

// secretPattern is an expression, and what stands in the place of its matches.
type secretPattern struct {
	match   *regexp.Regexp
	replace string
}

// secretPatterns returns the expressions of secrets within a line, and of keys over several.
func secretPatterns() []secretPattern {
	pattern := func(match, replace string) secretPattern { return secretPattern{regexp.MustCompile(match), replace} }

	return []secretPattern{
		pattern(`(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z))`, redacted),
		pattern(`\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*`, redacted), // JSON Web Tokens
		pattern(`((?i:bearer|basic)\s+)[\w.~+/=-]{6,}`, "${1}"+redacted),
		pattern(`(\w+://)[^\s"']+@`, "${1}"+redacted+"@"), // credentials in URLs; a password may have a slash or an at sign
		// The path of a webhook is its secret.
		pattern(`(\w+://[^\s"'/]+(?:/api)?/(?:services|hooks|webhooks?|workflows)/)[^\s"']+`, "${1}"+redacted),
		// A flag whose value is the next argument: of a list in YAML or JSON, or of a command line.
		pattern(`(--?`+secretWords+`["']?(?:[ \t]*,[ \t]*|[ \t]*\n[ \t]*-[ \t]+|[ \t]+))(?:`+quotedValue+`|[^\s,\]]+)`, "${1}"+redacted),
		// Without quotes the end of a value is not known: it may have commas and spaces.
		pattern(`(["'\\]*`+secretWords+`["'\\]*[ \t]*[:=][ \t]*)(?:`+quotedValue+`|[^\s][^\n]*)`, "${1}"+redacted),
	}
}

// redact replaces what looks like a secret. It errs on the side of removing too much.
func redact(content []byte) []byte {
	content = redactBlocks(content)
	for _, p := range secretPatterns() {
		content = p.match.ReplaceAll(content, []byte(p.replace))
	}

	return content
}

// redactBlocks replaces the lines below the name of a secret that belong to its value: those of a block or a list in YAML, and of a long
// value that is folded.
func redactBlocks(content []byte) []byte {
	named := regexp.MustCompile(secretWords + `["'\\]*[ \t]*[:=]`)
	key := regexp.MustCompile(`^["']?` + secretWords + `["']?[ \t]*:`)
	empty := regexp.MustCompile(`:[ \t]*$`)

	out := make([]byte, 0, len(content))
	indent := -1 // The indentation of the name; -1 outside of its value.
	withItems := false
	for line := range bytes.Lines(content) {
		text := bytes.TrimSpace(line)
		depth := len(line) - len(bytes.TrimLeft(line, " \t"))
		isItem := withItems && depth == indent && bytes.HasPrefix(text, []byte("- "))
		if indent >= 0 && len(text) > 0 && (depth > indent || isItem) {
			out = append(out, line[:depth]...)
			out = append(out, redacted+"\n"...)
			continue
		}

		out = append(out, line...)
		if len(text) == 0 {
			continue
		}

		indent = -1
		if !named.Match(text) {
			continue
		}

		// The value of a key in a list of objects is deeper than the key, not than the dash.
		indent = depth
		withItems = empty.Match(text)
		if item := bytes.TrimLeft(text, "- "); key.Match(item) {
			indent += len(text) - len(item)
		}
	}

	return out
}

// redactObject removes the values of environment variables, managed fields, and the annotation with which kubectl repeats the object.
func redactObject(o *unstructured.Unstructured) {
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	o.SetAnnotations(annotations)
	redactEnv(o.Object)
}

// redactEnv replaces the values of all lists named env, at any depth.
func redactEnv(node any) {
	switch n := node.(type) {
	case map[string]any:
		for key, child := range n {
			if list, ok := child.([]any); ok && key == "env" {
				for _, entry := range list {
					if variable, ok := entry.(map[string]any); ok && variable["value"] != nil {
						variable["value"] = redacted
					}
				}
			}

			redactEnv(child)
		}

	case []any:
		for _, child := range n {
			redactEnv(child)
		}
	}
}
