// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingmetric

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// LabelValue returns a text as the value of a label, or as the name in the key of an annotation: both allow the same characters. A text that
// Kubernetes refuses there, such as the name of a recording rule with its colons, has those characters replaced, is shortened and gets a hash
// of the whole text appended. Other texts stay as they are.
func LabelValue(text string) string {
	if len(validation.IsValidLabelValue(text)) == 0 {
		return text
	}

	readable := strings.Map(func(r rune) rune {
		isAllowed := r == '-' || r == '_' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !isAllowed {
			return '_'
		}

		return r
	}, text)

	const hashBytes = 5

	sum := sha256.Sum256([]byte(text))
	suffix := hex.EncodeToString(sum[:hashBytes])
	readable = readable[:min(len(readable), validation.LabelValueMaxLength-len(suffix)-1)]
	readable = strings.Trim(readable, "-._")
	if readable == "" {
		return suffix
	}

	return readable + "-" + suffix
}

// sameText reports whether a text is another one, or the text that LabelValue encodes as the other one.
func sameText(text, labelValue string) bool {
	return text == labelValue || LabelValue(text) == labelValue
}
