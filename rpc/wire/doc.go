// Package wire is protobuf by hand: fields that are walked over and appended without generated
// types, the buffers that messages are read into, a codec that passes messages on as bytes
// (raw.go), and one that has calls read and write themselves, and leaves the rest to the library
// (codec.go). The hot paths of rpc stand on it; tests hold what they read and write against the
// generated code.
package wire
