package native

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"

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
	c := newWeighedConn(conn, raw, w.door)
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
