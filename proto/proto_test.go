// Package proto_test keeps the .proto files in order: what a linter for protobuf would check, for the rules that matter
// here, and that the generated code is that of the files.
package proto_test

import (
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	peerv1 "penstock/proto/penstock/peer/v1"
	penstockv1 "penstock/proto/penstock/v1"
)

var files = []protoreflect.FileDescriptor{
	penstockv1.File_penstock_v1_penstock_proto,
	peerv1.File_penstock_peer_v1_peer_proto,
}

// The rules, each for the reader of an API that cannot be taken back:
//
//   - a package is its directory and ends in a version, so that a second version can stand beside the first;
//   - names are those that every generator expects: lower_snake fields, UPPER_SNAKE values;
//   - an enum's zero is UNSPECIFIED, because every absent field reads as zero, and its values begin with its name,
//     because in C++ they share one scope;
//   - each call has messages of its own, so that either can grow without the other;
//   - services, calls and messages say what they mean.
func TestProtosAreLinted(t *testing.T) {
	for _, f := range files {
		name := string(f.Package())
		if want := path.Dir(f.Path()); strings.ReplaceAll(name, ".", "/") != want {
			t.Errorf("%s: package %s is not its directory", f.Path(), name)
		}
		if last := name[strings.LastIndexByte(name, '.')+1:]; last[0] != 'v' || strings.Trim(last[1:], "0123456789") != "" {
			t.Errorf("%s: package %s does not end in a version", f.Path(), name)
		}
		lintMessages(t, f.Messages())
		lintEnums(t, f.Enums())
		lintServices(t, f.Services())
		for i := range f.Imports().Len() {
			if imported := f.Imports().Get(i).Path(); !strings.HasPrefix(imported, "google/protobuf/") {
				t.Errorf("%s imports %s; only google/protobuf/* is at hand for every user", f.Path(), imported)
			}
		}
	}
}

func lintMessages(t *testing.T, all protoreflect.MessageDescriptors) {
	for i := range all.Len() {
		m := all.Get(i)
		camel(t, m)
		for k := range m.Fields().Len() {
			if f := m.Fields().Get(k); string(f.Name()) != strings.ToLower(string(f.Name())) || strings.Contains(string(f.Name()), "__") {
				t.Errorf("%s is not lower_snake_case", f.FullName())
			}
		}
		lintMessages(t, m.Messages())
		lintEnums(t, m.Enums())
	}
}

func lintEnums(t *testing.T, all protoreflect.EnumDescriptors) {
	for i := range all.Len() {
		e := all.Get(i)
		camel(t, e)
		prefix := upperSnake(string(e.Name())) + "_"
		for k := range e.Values().Len() {
			if v := e.Values().Get(k); !strings.HasPrefix(string(v.Name()), prefix) || strings.ToUpper(string(v.Name())) != string(v.Name()) {
				t.Errorf("%s does not begin with %s, or is not UPPER_SNAKE_CASE", v.FullName(), prefix)
			}
		}
		if zero := e.Values().ByNumber(0); zero == nil || string(zero.Name()) != prefix+"UNSPECIFIED" {
			t.Errorf("the zero of %s is not %sUNSPECIFIED", e.FullName(), prefix)
		}
	}
}

func lintServices(t *testing.T, all protoreflect.ServiceDescriptors) {
	used := map[protoreflect.FullName]protoreflect.FullName{}
	for i := range all.Len() {
		s := all.Get(i)
		camel(t, s)
		for k := range s.Methods().Len() {
			m := s.Methods().Get(k)
			camel(t, m)
			for _, message := range []protoreflect.FullName{m.Input().FullName(), m.Output().FullName()} {
				if other, taken := used[message]; taken {
					t.Errorf("%s uses %s, which belongs to %s", m.FullName(), message, other)
				}
				used[message] = m.FullName()
			}
		}
	}
}

// camel checks the name of d.
func camel(t *testing.T, d protoreflect.Descriptor) {
	if name := string(d.Name()); name[0] < 'A' || name[0] > 'Z' || strings.Contains(name, "_") {
		t.Errorf("%s is not UpperCamelCase", d.FullName())
	}
}

func upperSnake(camel string) string {
	var b strings.Builder
	for i, r := range camel {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

// TestEverythingIsCommented reads the sources: compiled descriptors have no comments any more.
func TestEverythingIsCommented(t *testing.T) {
	for _, f := range files {
		before := ""
		for i, line := range readLines(t, f.Path()) {
			trimmed := strings.TrimSpace(line)
			for _, what := range []string{"service ", "rpc ", "message ", "enum "} {
				if strings.HasPrefix(trimmed, what) && !strings.HasPrefix(before, "//") {
					t.Errorf("%s:%d: %q has no comment", f.Path(), i+1, trimmed)
				}
			}
			before = trimmed
		}
	}
}

func readLines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

// TestGeneratedCodeIsCurrent generates again and compares.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	if _, err := exec.LookPath("protoc"); err != nil {
		t.Skip("NOT CHECKED whether the generated code is that of the .proto files: protoc is missing (Debian: protobuf-compiler)")
	}
	if out, err := exec.Command("./generate.sh", "--check").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
