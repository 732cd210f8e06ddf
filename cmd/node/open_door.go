package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"

	"penstock/rpc/door"
)

// openDoor is a listener and what serves it.
type openDoor struct {
	place
	listener net.Listener
	keeper   *door.Keeper              // the listener, too
	serve    func(net.Listener) error  // until close
	close    func(ctx context.Context) // lets requests under way end, at most until ctx ends
}

// opened is the open door of a flag, or nil.
func (r *running) opened(flag string) *openDoor {
	for _, d := range r.doors {
		if d.flag == flag {
			return d
		}
	}
	return nil
}

// address is where others reach the door of a flag; empty if it is off.
func (r *running) address(flag string) string {
	if d := r.opened(flag); d != nil {
		return reachable(d.listener, r.host)
	}
	return ""
}

func (o *openDoor) serveHTTP(s *http.Server, t *tls.Config) {
	o.serve = func(l net.Listener) error {
		if t != nil {
			s.TLSConfig = t.Clone() // each server adds to its own
			return ignore(s.ServeTLS(l, "", ""), http.ErrServerClosed)
		}
		return ignore(s.Serve(l), http.ErrServerClosed)
	}
	o.close = func(ctx context.Context) {
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
}

// grpcServer is what a node needs of *grpc.Server.
type grpcServer interface {
	Serve(net.Listener) error
	GracefulStop()
	Stop()
}

func (o *openDoor) serveGRPC(s grpcServer) {
	o.serve = s.Serve
	o.close = func(ctx context.Context) {
		hurry := context.AfterFunc(ctx, s.Stop)
		defer hurry()
		s.GracefulStop()
	}
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
