// Package door is what all doors for clients share. A door is a protocol that clients speak:
// penstock.v1, HTTP, Gubernator's API, Envoy's, the Redis protocol. Follow one request through any
// of them:
//
//  1. Keeper lets the connection in, if the door and its address have room for one more.
//  2. The door finds out which client it is (ClientsOf, Caller), and decodes the request into a
//     cluster.Request. A limit that the request brings along comes from Inlines, which bounds how
//     many of them one client has.
//  3. Permit says whether the client may ask for all of it. Nothing is charged before.
//  4. cluster.Node.Check decides, and the door encodes the decisions. All times that it writes in
//     milliseconds are rounded up by Millis.
//  5. What is wrong with a request is said in one place, for all doors alike: Explain turns an
//     error into a Fault, which has a gRPC code, an HTTP status, the field and a text.
//  6. Metrics counts, and Recorder writes what the client has changed to the audit log.
//
// The package knows no protocol, and no door of this house.
package door
