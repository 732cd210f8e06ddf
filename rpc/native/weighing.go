package native

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"

	"penstock/rpc/door"
	"penstock/rpc/fair"
)

// weighing are credentials that weigh their connections.
type weighing struct {
	credentials.TransportCredentials
	door *intake
}

func (w weighing) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := w.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	c := newWeighedConn(conn, door.Below(raw), w.door)
	return readyConn(c), weighedInfo{info, c}, nil
}

// weighedInfo is what a handshake has found out, with the connection.
type weighedInfo struct {
	credentials.AuthInfo
	conn *weighedConn
}

func (w weighedInfo) Handshake() credentials.AuthInfo { return w.AuthInfo }

func (w weighedInfo) Origin() string { return w.conn.origin(w.AuthInfo) }

func (w weighedInfo) Line() *fair.Line { return w.conn.line }

func (w weighing) Clone() credentials.TransportCredentials {
	return weighing{w.TransportCredentials.Clone(), w.door}
}

// ClientHandshake is not for a door.
func (w weighing) ClientHandshake(ctx context.Context, name string,
	raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	return w.TransportCredentials.ClientHandshake(ctx, name, raw)
}

// handedOver are credentials for connections of which another server has seen to the handshake.
type handedOver struct {
	credentials.TransportCredentials
}

func (h handedOver) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	handed, ok := raw.(*door.Handed)
	if !ok || handed.TLS() == nil {
		return h.TransportCredentials.ServerHandshake(raw)
	}
	return raw, credentials.TLSInfo{
		State:          handed.TLS().ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

func (h handedOver) Clone() credentials.TransportCredentials {
	return handedOver{h.TransportCredentials.Clone()}
}
