// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/pkg/units"
)

// Field is a type that decodes itself from JSON.
type Field interface {
	// DecodeField sets the value, or returns the allowed values if it cannot.
	DecodeField(raw json.RawMessage) (allowed string)
}

// Decode reads a JSON object strictly into the struct that target points to. Fields that the document lacks keep their value.
// Fields are named by their json tags, embedded structs are flattened, and a field without a tag is not part of the
// document. Unknown and repeated fields and values of another type are errors.
//
// Durations are read by units.ParseDuration; units.MilliCPU and units.Bytes are Kubernetes quantities of 0 or more.
func Decode(data []byte, target any) Errors {
	d := &decoder{}
	d.object("", data, reflect.ValueOf(target).Elem())
	return d.errs
}

type decoder struct{ errs Errors }

// object decodes the fields of a struct.
func (d *decoder) object(path string, raw json.RawMessage, target reflect.Value) {
	fields := map[string]reflect.Value{}
	addFields(fields, target)

	for _, m := range d.members(path, raw) {
		field, ok := fields[m.name]
		if !ok {
			d.errs.Fail(Join(path, printable(m.name)), valueText(m.raw), "unknown field; "+nearest(m.name, slices.Collect(maps.Keys(fields))))
			continue
		}

		d.value(Join(path, m.name), m.raw, field)
	}
}

// addFields lists the fields of a struct by their names in JSON.
func addFields(fields map[string]reflect.Value, target reflect.Value) {
	for i := range target.NumField() {
		field := target.Type().Field(i)
		if field.Anonymous {
			addFields(fields, target.Field(i))
		} else if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			fields[name] = target.Field(i)
		}
	}
}

type member struct {
	name string
	raw  json.RawMessage
}

// members returns the members of a JSON object in the order of the document, without repeated ones.
func (d *decoder) members(path string, raw json.RawMessage) []member {
	members, err := splitObject(raw)
	if err != nil {
		allowed := "must be an object"
		if path == "" {
			allowed = fmt.Sprintf("not a JSON object: %v", err)
		}

		d.errs.Fail(path, valueText(raw), allowed)
		return nil
	}

	seen := map[string]bool{}
	return slices.DeleteFunc(members, func(m member) bool {
		repeated := seen[m.name]
		seen[m.name] = true

		if repeated {
			d.errs.Fail(Join(path, m.name), "", "is given more than once")
		}

		return repeated
	})
}

func splitObject(raw json.RawMessage) ([]member, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	start, err := decoder.Token()
	if err != nil {
		return nil, err
	}

	if start != json.Delim('{') {
		return nil, errors.New("it does not start with {")
	}

	// Members are read one by one, because a map would lose repeated names.
	var out []member
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}

		m := member{name: fmt.Sprint(token)}
		if err := decoder.Decode(&m.raw); err != nil {
			return nil, err
		}

		out = append(out, m)
	}

	if _, err := decoder.Token(); err != nil {
		return nil, err
	}

	if decoder.More() {
		return nil, errors.New("data after the object")
	}

	return out, nil
}

// value decodes one field.
func (d *decoder) value(path string, raw json.RawMessage, target reflect.Value) {
	allowed := ""
	switch v := target.Addr().Interface().(type) {
	case Field:
		allowed = v.DecodeField(raw)
	case *json.RawMessage:
		*v = raw
	case *time.Duration:
		allowed = decodeDuration(raw, v)

	case *units.MilliCPU:
		allowed = decodeQuantity(raw, func(q resource.Quantity) { *v = units.MilliCPU(q.MilliValue()) })
	case *units.Bytes:
		allowed = decodeQuantity(raw, func(q resource.Quantity) { *v = units.Bytes(q.Value()) })
	default:
		allowed = d.kind(path, raw, target)
	}

	if allowed != "" {
		d.errs.Fail(path, valueText(raw), allowed)
	}
}

// kind decodes a value by its kind. It panics for kinds that no document of Crane has.
func (d *decoder) kind(path string, raw json.RawMessage, target reflect.Value) (allowed string) {
	switch target.Kind() {
	case reflect.Struct:
		d.object(path, raw, target)

	case reflect.Pointer:
		target.Set(reflect.New(target.Type().Elem()))
		d.value(path, raw, target.Elem())

	case reflect.Map:
		target.Set(reflect.MakeMap(target.Type()))
		for _, m := range d.members(path, raw) {
			item := reflect.New(target.Type().Elem()).Elem()
			d.value(Join(path, m.name), m.raw, item)
			target.SetMapIndex(reflect.ValueOf(m.name), item)
		}

	case reflect.Slice:
		var items []json.RawMessage
		// null is decoded without an error, but is no list.
		if json.Unmarshal(raw, &items) != nil || items == nil {
			return "must be a list"
		}

		list := reflect.MakeSlice(target.Type(), len(items), len(items))
		for i, item := range items {
			d.value(path+"["+strconv.Itoa(i)+"]", item, list.Index(i))
		}
		target.Set(list)

	case reflect.String:
		return decodeBasic(raw, target, "must be a text")

	case reflect.Bool:
		return decodeBasic(raw, target, "must be true or false")

	case reflect.Float64:
		return decodeBasic(raw, target, "must be a number, for example 0.15")

	default:
		panic(fmt.Sprintf("%s: no way to decode a %s", path, target.Type()))
	}

	return ""
}

// decodeBasic leaves the decoding to encoding/json, but for null.
func decodeBasic(raw json.RawMessage, target reflect.Value, allowed string) string {
	if string(raw) == "null" || json.Unmarshal(raw, target.Addr().Interface()) != nil {
		return allowed
	}

	return ""
}

func decodeDuration(raw json.RawMessage, target *time.Duration) (allowed string) {
	var text string
	err := json.Unmarshal(raw, &text)
	if err == nil {
		*target, err = units.ParseDuration(text)
	}

	if err != nil {
		return "must be a duration such as 7d, 36h or 90s"
	}

	return ""
}

// maxQuantity keeps thousandths of a quantity within an int64.
const maxQuantity = 1 << 53

func decodeQuantity(raw json.RawMessage, set func(resource.Quantity)) (allowed string) {
	q, err := resource.ParseQuantity(unquote(raw))
	if err != nil || q.Sign() < 0 || q.CmpInt64(maxQuantity) > 0 {
		return "must be a quantity such as 250m, 2 or 512Mi, not below zero"
	}

	set(q)
	return ""
}

// unquote returns the text of a JSON string, and any other value as it is written.
func unquote(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return string(raw)
	}

	return text
}

// maxValueText bounds values in messages, in bytes.
const maxValueText = 60

// valueText returns a value for a message in one line, shortened.
func valueText(raw json.RawMessage) string {
	text := strings.ToValidUTF8(strings.Join(strings.Fields(unquote(raw)), " "), "?")
	if len(text) > maxValueText {
		return strings.ToValidUTF8(text[:maxValueText], "") + "..."
	}

	return text
}

// printable returns a name that cannot break a message over several lines.
func printable(name string) string {
	quoted := strconv.Quote(name)
	if quoted == `"`+name+`"` && len(name) <= maxValueText {
		return name
	}

	return valueText(json.RawMessage(quoted))
}
