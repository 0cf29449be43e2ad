// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const redacted = "REDACTED"

// secretWords matches names of flags and keys whose value is a secret.
//
//nolint:gosec // matches names of settings and contains no secret
const secretWords = `(?i:[\w.-]*(?:password|passwd|passphrase|token|secret|credential|authorization|api-?_?key|private-?_?key|header)[\w.-]*)`

// secretPatterns returns the expressions whose first group is kept and whose remainder is removed.
func secretPatterns() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`()(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z))`),
		regexp.MustCompile(`()\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*`), // JSON Web Tokens
		regexp.MustCompile(`((?i:bearer|basic)\s+)[\w.~+/=-]{6,}`),
		regexp.MustCompile(`(\w+://)[^\s/@"']+@`), // credentials in URLs
		regexp.MustCompile(`(["']?` + secretWords + `["']?[ \t]*[:=][ \t]*)[^\s,}\]][^\n,}]*`),
	}
}

// redact replaces what looks like a secret. It errs on the side of removing too much.
func redact(content []byte) []byte {
	for i, pattern := range secretPatterns() {
		replacement := "${1}" + redacted
		if i == 3 {
			replacement += "@"
		}

		content = pattern.ReplaceAll(content, []byte(replacement))
	}

	return content
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
