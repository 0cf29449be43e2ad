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

// maxWarnings is the maximum number of warnings in one response; the API server truncates warnings beyond 4 KiB.
const maxWarnings = 20

// validator validates objects of one kind.
type validator[T client.Object] struct {
	kind     schema.GroupKind
	validate func(T, validation.Facts) validation.Result
	facts    FactReader
}

// ValidateCreate refuses an object with errors.
func (v validator[T]) ValidateCreate(ctx context.Context, o T) (admission.Warnings, error) {
	facts := v.facts.Facts(ctx)
	return v.answer(o, facts, v.validate(o, facts))
}

// ValidateUpdate refuses an object with errors that its old version did not have. An object that is being deleted is admitted, so
// that its finalizers can be removed.
func (v validator[T]) ValidateUpdate(ctx context.Context, before, after T) (admission.Warnings, error) {
	if after.GetDeletionTimestamp() != nil {
		return nil, nil
	}

	facts := v.facts.Facts(ctx)
	return v.answer(after, facts, validation.Ratchet(v.validate(before, facts), v.validate(after, facts)))
}

// ValidateDelete admits every deletion.
func (v validator[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) { return nil, nil }

func (v validator[T]) answer(o T, facts validation.Facts, verdict validation.Result) (admission.Warnings, error) {
	warnings := verdict.Warnings
	if disabled, ok := facts.Disabled(v.kind.Kind); ok {
		warnings = append([]string{disabled}, warnings...)
	}
	if more := len(warnings) - maxWarnings; more > 0 {
		warnings = append(warnings[:maxWarnings:maxWarnings], fmt.Sprintf("and %d more warnings", more))
	}

	if len(verdict.Errors) == 0 {
		return warnings, nil
	}

	return warnings, apierrors.NewInvalid(v.kind, o.GetName(), verdict.Errors)
}

// defaulter sets the defaults of objects of one kind.
type defaulter[T client.Object] struct {
	decoder     admission.Decoder
	newObject   func() T
	setDefaults func(T)
}

// Handle returns a patch of only the fields that defaulting changed, so that a quantity stays as it was written. An object that
// is being deleted is not changed, and an undecodable one is left to the schema.
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

// newValidatingEndpoint returns the endpoint that validates objects of one kind.
func newValidatingEndpoint[T client.Object](
	scheme *runtime.Scheme, kind schema.GroupVersionKind, facts FactReader, validate func(T, validation.Facts) validation.Result,
) Endpoint {
	return Endpoint{
		Path: webhookPath("validate", kind), Kind: kind,
		webhook: admission.WithValidator(scheme, validator[T]{kind: kind.GroupKind(), validate: validate, facts: facts}),
	}
}

// newDefaultingEndpoint returns the endpoint that sets the defaults of one kind.
func newDefaultingEndpoint[T any, P interface {
	*T
	client.Object
}](scheme *runtime.Scheme, kind schema.GroupVersionKind, setDefaults func(P)) Endpoint {
	return Endpoint{
		Path:    webhookPath("mutate", kind),
		Kind:    kind,
		Mutates: true,
		webhook: &admission.Webhook{Handler: defaulter[P]{decoder: admission.NewDecoder(scheme), newObject: func() P { return new(T) }, setDefaults: setDefaults}},
	}
}
