package rpctest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"path"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	penstockv1 "penstock/proto/penstock/v1"
)

// Calls is a client of any method of a gRPC door, with messages in JSON.
type Calls struct {
	conn  *grpc.ClientConn
	token string
}

// DialTLS is a client that sends a token, if it has one.
func DialTLS(t testing.TB, address string, c *tls.Config, token string) *Calls {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(c)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &Calls{conn, token}
}

// CodeOf is the name of the code of an error.
func CodeOf(err error) string { return status.Code(err).String() }

// Call calls SERVICE/METHOD, of a stream once, and returns the answer. An error that is in the
// answer is returned as well.
func (c *Calls) Call(ctx context.Context, method, body string) (out proto.Message, err error) {
	if c.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
	}
	service, name := path.Split(method)
	list, err := methodsOf(strings.TrimSuffix(service, "/"))
	if err != nil {
		return nil, err
	}
	m := list.ByName(protoreflect.Name(name))
	in, err := messageOf(m.Input())
	if err == nil {
		err = protojson.Unmarshal([]byte(body), in)
	}
	if err == nil {
		out, err = messageOf(m.Output())
	}
	switch {
	case err != nil:
		return nil, err
	case m.IsStreamingClient() || m.IsStreamingServer():
		kind := grpc.StreamDesc{ClientStreams: m.IsStreamingClient(), ServerStreams: true}
		err = c.once(ctx, &kind, "/"+method, in, out)
	default:
		err = c.conn.Invoke(ctx, "/"+method, in, out)
	}
	return out, err
}

// once sends in over a new stream, and reads one answer.
func (c *Calls) once(
	ctx context.Context, kind *grpc.StreamDesc, method string, in, out proto.Message,
) error {
	stream, err := c.conn.NewStream(ctx, kind, method)
	if err != nil {
		return err
	}
	// io.EOF: what ended the stream is said where the answer is read
	if err := stream.SendMsg(in); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !kind.ClientStreams {
		if err := stream.CloseSend(); err != nil {
			return err
		}
	}
	if err := stream.RecvMsg(out); err != nil {
		return err
	}
	if answer, ok := out.(*penstockv1.CheckStreamResponse); ok {
		return status.Error(codes.Code(answer.GetError().GetCode()), answer.GetError().GetMessage())
	}
	return nil
}

// Methods are all methods of the door, as SERVICE/METHOD, by its own word.
func (c *Calls) Methods(ctx context.Context) (names []string, err error) {
	out, err := c.Call(ctx, "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
		`{"listServices":""}`)
	if err != nil {
		return nil, err
	}
	list := out.(*reflectionv1.ServerReflectionResponse).GetListServicesResponse()
	for _, s := range list.GetService() {
		methods, err := methodsOf(s.Name)
		if err != nil {
			return nil, err
		}
		for i := range methods.Len() {
			names = append(names, s.Name+"/"+string(methods.Get(i).Name()))
		}
	}
	return names, nil
}

func methodsOf(service string) (protoreflect.MethodDescriptors, error) {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, err
	}
	return found.(protoreflect.ServiceDescriptor).Methods(), nil
}

func messageOf(d protoreflect.MessageDescriptor) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return nil, err
	}
	return kind.New().Interface(), nil
}
