// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetemplate

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

// nodeText is a string of a Node, such as an address. Whoever controls the node chooses it, so it may try to end a string of an expression or of
// YAML. It is printed as a placeholder, which is replaced when the YAML is decoded and it is known where the text stands.
type nodeText string

// Format implements fmt.Formatter for all verbs. %q adds quotes.
func (t nodeText) Format(s fmt.State, verb rune) {
	quote := ""
	if verb == 'q' {
		quote = `"`
	}

	_, _ = fmt.Fprintf(s, "%s%s%x%s%s", quote, placeholderStart, string(t), placeholderEnd, quote) // Package fmt keeps errors of its own writer.
}

// Placeholders are between runes for private use, which neither templates nor Nodes may contain.
const (
	placeholderStart = "\uE000"
	placeholderEnd   = "\uE001"
)

var (
	placeholder = regexp.MustCompile(placeholderStart + "((?:[0-9a-f]{2})*)" + placeholderEnd)
	// wholeNumber is printed as it is, so that it is a number in YAML.
	wholeNumber = regexp.MustCompile(`^[0-9]{1,15}$`)
	// plainKey is a key that needs no escaping, as those of labels, annotations and resources.
	plainKey = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)
)

func hasPlaceholderRunes(text string) bool {
	return strings.ContainsAny(text, placeholderStart+placeholderEnd)
}

// markTexts changes the strings of a Node to nodeText. Entries with other keys than plainKey are removed, because keys are printed as they are.
func markTexts(value any) any {
	switch v := value.(type) {
	case string:
		if wholeNumber.MatchString(v) {
			return v
		}

		// A placeholder in a text would be replaced without escaping, after the text's own.
		return nodeText(strings.NewReplacer(placeholderStart, "\uFFFD", placeholderEnd, "\uFFFD").Replace(v))

	case []any:
		for i := range v {
			v[i] = markTexts(v[i])
		}
	case map[string]any:
		for key := range v {
			if plainKey.MatchString(key) {
				v[key] = markTexts(v[key])
			} else {
				delete(v, key)
			}
		}
	}

	return value
}

// resolve replaces the placeholders of a spec: those of expressions and patterns escaped, all others as they are.
func resolve(spec *predictionv1alpha1.TimeSeriesPredictionSpec) error {
	for i := range spec.PredictionMetrics {
		m := &spec.PredictionMetrics[i]
		if m.MetricQuery != nil {
			resolvePatterns(m.MetricQuery.QueryConditions)
		}

		if m.ExpressionQuery != nil {
			expression, err := resolveExpression(m.ExpressionQuery.Expression)
			if err != nil {
				return fmt.Errorf("expression of metric %d: %w", i, err)
			}

			m.ExpressionQuery.Expression = expression
		}
	}

	// All other strings are plain data: replaced in JSON, a text cannot end its string either.
	content, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encoding the spec: %w", err)
	}

	text := replacePlaceholders(string(content), quoteJSON)
	if hasPlaceholderRunes(text) {
		return errors.New("a text of the Node is changed or cut")
	}

	*spec = predictionv1alpha1.TimeSeriesPredictionSpec{}
	if err := json.Unmarshal([]byte(text), spec); err != nil {
		return fmt.Errorf("decoding the spec: %w", err)
	}

	return nil
}

func resolvePatterns(conditions []predictionv1alpha1.QueryCondition) {
	for _, c := range conditions {
		if !isPatternOperator(string(c.Operator)) {
			continue
		}

		for i := range c.Value {
			c.Value[i] = replacePlaceholders(c.Value[i], regexp.QuoteMeta)
		}
	}
}

func isPatternOperator(operator string) bool { return operator == "=~" || operator == "!~" }

// quoteJSON returns a text as it stands between the quotes of a string in JSON.
func quoteJSON(text string) string {
	quoted, _ := json.Marshal(text) // A string can always be encoded.
	return string(quoted[1 : len(quoted)-1])
}

func replacePlaceholders(text string, escape func(string) string) string {
	return placeholder.ReplaceAllStringFunc(text, func(match string) string {
		digits := strings.TrimSuffix(strings.TrimPrefix(match, placeholderStart), placeholderEnd)
		value, _ := hex.DecodeString(digits) // The pattern has pairs of digits only.
		return escape(string(value))
	})
}
