// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// DecodeDynamicSchedulerPolicy reads a DynamicSchedulerPolicy from one YAML or JSON document and checks it. An
// unexpected apiVersion or kind, an unknown or duplicate field, and an error of Validate are errors with the path of the
// field.
func DecodeDynamicSchedulerPolicy(data []byte) (*DynamicSchedulerPolicy, error) {
	return decodeValid[DynamicSchedulerPolicy](data, "DynamicSchedulerPolicy")
}

// DecodeRecommendationConfiguration reads a RecommendationConfiguration from one YAML or JSON document and checks it,
// with the same errors as DecodeDynamicSchedulerPolicy.
func DecodeRecommendationConfiguration(data []byte) (*RecommendationConfiguration, error) {
	return decodeValid[RecommendationConfiguration](data, "RecommendationConfiguration")
}

// validated is an object that checks itself.
type validated[T any] interface {
	*T
	runtime.Object
	Validate() field.ErrorList
}

func decodeValid[T any, P validated[T]](data []byte, kind string) (P, error) {
	object := P(new(T))
	if err := decode(data, object); err != nil {
		return nil, fmt.Errorf("decode %s: %w", kind, err)
	}

	if err := object.Validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("invalid %s: %w", kind, err)
	}

	return object, nil
}

// decode reads the one document in data into an object whose kind the document has to name.
func decode(data []byte, into runtime.Object) error {
	document, err := onlyDocument(data)
	if err != nil {
		return err
	}

	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return err
	}

	wanted, _, err := scheme.ObjectKinds(into)
	if err != nil {
		return err
	}

	var header metav1.TypeMeta
	if err := yaml.Unmarshal(document, &header); err != nil {
		return err
	}

	if found := header.GroupVersionKind(); found != wanted[0] {
		return fmt.Errorf("want apiVersion %s and kind %s, found %q and %q",
			wanted[0].GroupVersion(), wanted[0].Kind, header.APIVersion, header.Kind)
	}

	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	return runtime.DecodeInto(decoder, document, into)
}

// onlyDocument returns the one document of a YAML stream that holds more than comments.
func onlyDocument(data []byte) ([]byte, error) {
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var document []byte
	for {
		next, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}

		asJSON, err := yaml.ToJSON(next)
		if err != nil {
			return nil, err
		}

		if string(asJSON) == "null" {
			continue
		}

		if document != nil {
			return nil, errors.New("the file has more than one document")
		}

		document = next
	}

	if document == nil {
		return nil, errors.New("the file is empty")
	}

	return document, nil
}
