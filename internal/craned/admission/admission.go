// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"crane.io/crane/internal/craned/admission/validation"
)

// maxWarnings bounds the warnings of one answer: the API server cuts what goes beyond 4 KiB anyway.
const maxWarnings = 20

// validator asks for a verdict on objects of one kind.
type validator[T client.Object] struct {
	kind     schema.GroupKind
	validate func(T, validation.Facts) validation.Result
	facts    FactReader
}

// ValidateCreate refuses what has an error.
func (v validator[T]) ValidateCreate(ctx context.Context, o T) (admission.Warnings, error) {
	return v.answer(o, v.validate(o, v.facts.Facts(ctx)))
}

// ValidateUpdate refuses what has an error that it had not before. What is being deleted is let through, so that its finalizers
// can go.
func (v validator[T]) ValidateUpdate(ctx context.Context, before, after T) (admission.Warnings, error) {
	if after.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	facts := v.facts.Facts(ctx)
	return v.answer(after, validation.Ratchet(v.validate(before, facts), v.validate(after, facts)))
}

// ValidateDelete refuses nothing.
func (v validator[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) { return nil, nil }

func (v validator[T]) answer(o T, verdict validation.Result) (admission.Warnings, error) {
	warnings := verdict.Warnings
	if more := len(warnings) - maxWarnings; more > 0 {
		warnings = append(warnings[:maxWarnings:maxWarnings], fmt.Sprintf("and %d more warnings", more))
	}
	if len(verdict.Errors) == 0 {
		return warnings, nil
	}
	return warnings, apierrors.NewInvalid(v.kind, o.GetName(), verdict.Errors)
}

// defaulter fills in defaults of objects of one kind.
type defaulter[T client.Object] struct {
	decoder     admission.Decoder
	newObject   func() T
	setDefaults func(T)
}

// Handle answers with what filling in changed and nothing else: a quantity stays as it was written. What is being deleted stays as it
// is, and what cannot be read is for the schema to refuse.
func (d defaulter[T]) Handle(_ context.Context, req admission.Request) admission.Response {
	o := d.newObject()
	if err := d.decoder.Decode(req, o); err != nil || o.GetDeletionTimestamp() != nil {
		return admission.Allowed("")
	}
	before, err := json.Marshal(o)
	if err != nil {
		return admission.Allowed("")
	}
	d.setDefaults(o)
	after, err := json.Marshal(o)
	if err != nil {
		return admission.Allowed("")
	}
	return admission.PatchResponseFromRaw(before, after)
}

// newValidatingEndpoint is the endpoint that looks at objects of one kind.
func newValidatingEndpoint[T client.Object](
	scheme *runtime.Scheme, kind schema.GroupVersionKind, facts FactReader, look func(T, validation.Facts) validation.Result,
) Endpoint {
	return Endpoint{
		Path: webhookPath("validate", kind), Kind: kind,
		webhook: admission.WithValidator(scheme, validator[T]{kind: kind.GroupKind(), validate: look, facts: facts}),
	}
}

// newDefaultingEndpoint is the endpoint that fills in defaults of one kind.
func newDefaultingEndpoint[T any, P interface {
	*T
	client.Object
}](scheme *runtime.Scheme, kind schema.GroupVersionKind, fill func(P)) Endpoint {
	return Endpoint{
		Path: webhookPath("mutate", kind), Kind: kind, Mutates: true,
		webhook: &admission.Webhook{Handler: defaulter[P]{decoder: admission.NewDecoder(scheme), newObject: func() P { return new(T) }, setDefaults: fill}},
	}
}
