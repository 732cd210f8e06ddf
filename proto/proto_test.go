// Package proto_test keeps the .proto files in order: what a linter for protobuf would check, for
// the rules that matter here, and that the generated code is that of the files.
package proto_test

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"penstock/proto/gubernator"
	peerv1 "penstock/proto/penstock/peer/v1"
	penstockv1 "penstock/proto/penstock/v1"
)

var files = []protoreflect.FileDescriptor{
	penstockv1.File_penstock_v1_penstock_proto,
	peerv1.File_penstock_peer_v1_peer_proto,
}

// The rules, each for the reader of an API that cannot be taken back:
//
//   - a package is its directory and ends in a version, so that a second version can stand beside
//     the first;
//   - names are those that every generator expects: lower_snake fields, UPPER_SNAKE values;
//   - an enum's zero is UNSPECIFIED, because every absent field reads as zero, and its values begin
//     with its name, because in C++ they share one scope;
//   - each call has messages of its own, so that either can grow without the other;
//   - services, calls and messages say what they mean.
func TestProtosAreLinted(t *testing.T) {
	for _, f := range files {
		name := string(f.Package())
		if want := path.Dir(f.Path()); strings.ReplaceAll(name, ".", "/") != want {
			t.Errorf("%s: package %s is not its directory", f.Path(), name)
		}
		if last := name[strings.LastIndexByte(name, '.')+1:]; last[0] != 'v' ||
			strings.Trim(last[1:], "0123456789") != "" {
			t.Errorf("%s: package %s does not end in a version", f.Path(), name)
		}
		lintMessages(t, f.Messages())
		lintEnums(t, f.Enums())
		lintServices(t, f.Services())
		for i := range f.Imports().Len() {
			if imported := f.Imports().Get(i).Path(); !strings.HasPrefix(imported,
				"google/protobuf/") {
				t.Errorf("%s imports %s; only google/protobuf/* is at hand for every user",
					f.Path(), imported)
			}
		}
	}
}

func lintMessages(t *testing.T, all protoreflect.MessageDescriptors) {
	for i := range all.Len() {
		m := all.Get(i)
		camel(t, m)
		for k := range m.Fields().Len() {
			if f := m.Fields().Get(k); string(f.Name()) != strings.ToLower(string(f.Name())) ||
				strings.Contains(string(f.Name()), "__") {
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
			if v := e.Values().Get(k); !strings.HasPrefix(string(v.Name()), prefix) ||
				strings.ToUpper(string(v.Name())) != string(v.Name()) {
				t.Errorf("%s does not begin with %s, or is not UPPER_SNAKE_CASE",
					v.FullName(), prefix)
			}
		}
		if zero := e.Values().ByNumber(0); zero == nil ||
			string(zero.Name()) != prefix+"UNSPECIFIED" {
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
			for _, message := range []protoreflect.FullName{
				m.Input().FullName(),
				m.Output().FullName(),
			} {
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
		t.Skip("NOT CHECKED whether the generated code is that of the .proto files: protoc is " +
			"missing (Debian: protobuf-compiler)")
	}
	if out, err := exec.Command("./generate.sh", "--check").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGubernatorIsAsItsClientsKnowIt: their API breaks the rules above, and cannot be changed.
// Names, numbers and types of all fields, values of all enums.
func TestGubernatorIsAsItsClientsKnowIt(t *testing.T) {
	want := `GetRateLimitsReq: 1 requests message
GetRateLimitsResp: 1 responses message
RateLimitReq: 1 name string, 2 unique_key string, 3 hits int64, 4 limit int64, 5 duration int64,
 6 algorithm enum, 7 behavior enum, 8 burst int64, 9 metadata message, 10 created_at int64
RateLimitResp: 1 status enum, 2 limit int64, 3 remaining int64, 4 reset_time int64,
 5 error string, 6 metadata message
HealthCheckReq:
HealthCheckResp: 1 status string, 2 message string, 3 peer_count int32, 4 advertise_address string,
 5 local_peers message, 6 region_peers message
PeerHealthResp: 1 grpc_address string, 2 http_address string, 3 data_center string, 4 error string
LiveCheckReq:
LiveCheckResp:
Algorithm: 0 TOKEN_BUCKET, 1 LEAKY_BUCKET
Behavior: 0 BATCHING, 1 NO_BATCHING, 2 GLOBAL, 4 DURATION_IS_GREGORIAN, 8 RESET_REMAINING,
 16 MULTI_REGION, 32 DRAIN_OVER_LIMIT
Status: 0 UNDER_LIMIT, 1 OVER_LIMIT
/pb.gubernator.V1/GetRateLimits /pb.gubernator.V1/HealthCheck /pb.gubernator.V1/LiveCheck
`
	var got strings.Builder
	f := gubernator.File_gubernator_gubernator_proto
	for i := range f.Messages().Len() {
		m := f.Messages().Get(i)
		var fields []string
		for k := range m.Fields().Len() {
			x := m.Fields().Get(k)
			fields = append(fields, fmt.Sprintf(" %d %s %v", x.Number(), x.Name(), x.Kind()))
		}
		fmt.Fprintf(&got, "%s:%s\n", m.Name(), strings.Join(fields, ","))
	}
	for i := range f.Enums().Len() {
		e := f.Enums().Get(i)
		var values []string
		for k := range e.Values().Len() {
			values = append(values, fmt.Sprintf(" %d %s", e.Values().Get(k).Number(),
				e.Values().Get(k).Name()))
		}
		fmt.Fprintf(&got, "%s:%s\n", e.Name(), strings.Join(values, ","))
	}
	fmt.Fprintln(&got, gubernator.V1_GetRateLimits_FullMethodName,
		gubernator.V1_HealthCheck_FullMethodName, gubernator.V1_LiveCheck_FullMethodName)
	if want = strings.ReplaceAll(want, "\n ", " "); got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}
