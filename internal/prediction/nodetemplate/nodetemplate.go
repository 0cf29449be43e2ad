// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodetemplate renders the template of the TimeSeriesPredictions of nodes.
package nodetemplate

import (
	"bytes"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

// maxSpecBytes limits the output of a template.
const maxSpecBytes = 256 << 10

// Render executes the template, in the language of text/template, with the Node as JSON, as in {{.metadata.name}}, and returns the spec of the
// node's TimeSeriesPrediction. A missing key is an error, because a query with "<no value>" would match nothing.
//
// Texts of the Node are data in the output: they end no string of YAML or of an expression, and in the pattern of a matcher they match themselves
// alone. What cannot be escaped is an error, as a text outside of a string of an expression that is not a number.
func Render(text string, node *corev1.Node) (predictionv1alpha1.TimeSeriesPredictionSpec, error) {
	var spec predictionv1alpha1.TimeSeriesPredictionSpec
	if hasPlaceholderRunes(text) {
		return spec, errors.New("template: it has characters U+E000 or U+E001, which are reserved")
	}

	data, err := runtime.DefaultUnstructuredConverter.ToUnstructured(node)
	if err != nil {
		return spec, fmt.Errorf("template: %w", err)
	}

	out, err := execute(text, markTexts(data))
	if err != nil {
		return spec, err
	}

	if err := yaml.UnmarshalStrict(out, &spec); err != nil {
		return spec, fmt.Errorf("the template's output is not a spec of a TimeSeriesPrediction: %w", err)
	}

	if err := resolve(&spec); err != nil {
		return spec, fmt.Errorf("template: %w", err)
	}

	if len(spec.PredictionMetrics) == 0 {
		return spec, errors.New("the template's output has no predictionMetrics")
	}

	// The target is the Node whatever the template says.
	spec.TargetRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name}
	if spec.PredictionWindowSeconds == 0 {
		spec.PredictionWindowSeconds = predictionv1alpha1.DefaultPredictionWindowSeconds
	}

	return spec, nil
}

// limitedBuffer is a buffer of at most maxSpecBytes.
type limitedBuffer struct{ buf bytes.Buffer }

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > maxSpecBytes {
		return 0, fmt.Errorf("output of more than %d bytes", maxSpecBytes)
	}

	return b.buf.Write(p)
}
