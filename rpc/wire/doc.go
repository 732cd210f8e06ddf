// Package wire is protobuf by hand: fields that are walked over and appended without generated types,
// the buffers that messages are read into, and a codec that passes messages on as bytes. The hot
// paths of rpc stand on it; tests hold what they read and write against the generated code.
package wire
