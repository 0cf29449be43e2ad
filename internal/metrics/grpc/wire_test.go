// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// described reads datasource.proto, as far as it goes: messages with fields of scalars and messages, and one oneof.
func described(t *testing.T) protoreflect.FileDescriptor {
	t.Helper()
	text, err := os.ReadFile("datasource.proto")
	if err != nil {
		t.Fatal(err)
	}
	file := &descriptorpb.FileDescriptorProto{Name: new("datasource.proto"), Syntax: new("proto3")}
	message := regexp.MustCompile(`(?ms)^message (\w+) \{\n(.*?)^\}`)
	field := regexp.MustCompile(`(?m)^\s+(repeated )?(\w+) (\w+) = (\d+);$`)
	for _, m := range message.FindAllStringSubmatch(string(text), -1) {
		one := &descriptorpb.DescriptorProto{Name: new(m[1])}
		at := strings.Index(m[2], "oneof ")
		if at >= 0 {
			one.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: new("info")}}
		}
		for _, f := range field.FindAllStringSubmatchIndex(m[2], -1) {
			part := func(i int) string {
				if f[2*i] < 0 {
					return ""
				}
				return m[2][f[2*i]:f[2*i+1]]
			}
			number, err := strconv.Atoi(part(4))
			if err != nil {
				t.Fatal(err)
			}
			d := &descriptorpb.FieldDescriptorProto{Name: new(part(3)), Number: new(int32(number))}
			d.Label = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()
			if part(1) != "" {
				d.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
			}
			switch kind := part(2); kind {
			case "string":
				d.Type = descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum()
			case "int64":
				d.Type = descriptorpb.FieldDescriptorProto_TYPE_INT64.Enum()
			case "double":
				d.Type = descriptorpb.FieldDescriptorProto_TYPE_DOUBLE.Enum()
			default:
				d.Type, d.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), new("."+kind)
			}
			if at >= 0 && f[0] > at {
				d.OneofIndex = proto.Int32(0)
			}
			one.Field = append(one.Field, d)
		}
		file.MessageType = append(file.MessageType, one)
	}
	out, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if out.Messages().Len() != 11 {
		t.Fatalf("%d messages", out.Messages().Len())
	}
	return out
}

func of(t *testing.T, file protoreflect.FileDescriptor, name string) *dynamicpb.Message {
	t.Helper()
	d := file.Messages().ByName(protoreflect.Name(name))
	if d == nil {
		t.Fatalf("no message %s", name)
	}
	return dynamicpb.NewMessage(d)
}

// TestRequestOnTheWire: Google's library reads what is written by hand, by the .proto file.
func TestRequestOnTheWire(t *testing.T) {
	file := described(t)
	for _, c := range []struct {
		r    request
		want string
	}{
		{
			request{"cpu", target{fieldContainer, []string{"ns", "Deployment", "web", "apps/v1", "app"}}, 1_700_000_000, 1_700_086_400, 60},
			`metric:{metricName:"cpu" container:{namespace:"ns" workloadKind:"Deployment" workloadName:"web" apiVersion:"apps/v1" name:"app"}} ` +
				`startTime:1700000000 endTime:1700086400 step:60`,
		},
		{
			request{"memory", target{fieldWorkload, []string{"ns", "StatefulSet", "db", ""}}, -1, 1, 300},
			`metric:{metricName:"memory" workload:{namespace:"ns" kind:"StatefulSet" name:"db"}} startTime:-1 endTime:1 step:300`,
		},
		{request{metric: "cpu", of: target{fieldNode, []string{"n1"}}}, `metric:{metricName:"cpu" node:{name:"n1"}}`},
	} {
		data, err := codec{}.Marshal(&c.r)
		if err != nil {
			t.Fatal(err)
		}
		m := of(t, file, "QueryTimeSeriesRequest")
		if err := proto.Unmarshal(data, m); err != nil {
			t.Fatal(err)
		}
		// The library writes its text with a space or two, as it likes that day.
		if got := strings.Join(strings.Fields(m.String()), " "); got != c.want || len(m.GetUnknown()) > 0 {
			t.Errorf("read\n%s, want\n%s", got, c.want)
		}
	}
	if _, err := (codec{}).Marshal("text"); err == nil {
		t.Error("a text is marshalled")
	}
	if err := (codec{}).Unmarshal(nil, "text"); err == nil {
		t.Error("a text is unmarshalled")
	}
}

// answerOf encodes series with Google's library.
func answerOf(t *testing.T, file protoreflect.FileDescriptor, list []timeSeries) []byte {
	t.Helper()
	m := of(t, file, "QueryTimeSeriesResponse")
	all := m.Mutable(m.Descriptor().Fields().ByNumber(1)).List()
	for _, one := range list {
		s := all.AppendMutable().Message()
		fields := s.Descriptor().Fields()
		for name, value := range one.labels {
			l := s.Mutable(fields.ByNumber(1)).List().AppendMutable().Message()
			l.Set(l.Descriptor().Fields().ByNumber(1), protoreflect.ValueOfString(name))
			l.Set(l.Descriptor().Fields().ByNumber(2), protoreflect.ValueOfString(value))
		}
		for _, p := range one.samples {
			l := s.Mutable(fields.ByNumber(2)).List().AppendMutable().Message()
			l.Set(l.Descriptor().Fields().ByNumber(1), protoreflect.ValueOfInt64(p.seconds))
			l.Set(l.Descriptor().Fields().ByNumber(2), protoreflect.ValueOfFloat64(p.value))
		}
	}
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestResponseOffTheWire: what Google's library writes by the .proto file is read by hand.
func TestResponseOffTheWire(t *testing.T) {
	want := []timeSeries{
		{map[string]string{"pod": "web-1", "node": "n1"}, []sample{{1_700_000_000, 0.25}, {1_700_000_060, 0}, {-5, -1.5}}},
		{map[string]string{}, nil},
	}
	var got response
	if err := (codec{}).Unmarshal(answerOf(t, described(t), want), &got); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.list) != fmt.Sprint(want) {
		t.Errorf("read %v, want %v", got.list, want)
	}
	for name, data := range map[string][]byte{
		"cut off":            answerOf(t, described(t), want)[:20],
		"more than all bits": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"too many series":    answerOf(t, described(t), make([]timeSeries, maxSeries+1)),
	} {
		if err := (codec{}).Unmarshal(data, &got); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// FuzzResponse: no bytes make reading panic.
func FuzzResponse(f *testing.F) {
	f.Add([]byte{0x0a, 0x02, 0x12, 0x00})
	f.Add([]byte{0x0a, 0x05, 0x12, 0x03, 0x08, 0x01, 0x11})
	f.Fuzz(func(t *testing.T, data []byte) {
		var r response
		if err := r.unmarshal(data); err == nil && len(r.list) > maxSeries {
			t.Error("more than the bound")
		}
	})
}
