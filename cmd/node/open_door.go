package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"

	"penstock/rpc/door"
	"penstock/rpc/web"
)

// openDoor is a listener and what serves it.
type openDoor struct {
	place
	listener net.Listener
	keeper   *door.Keeper              // the listener, too
	serve    func(net.Listener) error  // until close
	close    func(ctx context.Context) // lets requests under way end, at most until ctx ends
}

// openDoors are the doors of one node.
type openDoors struct {
	list []*openDoor
	host string // for listeners on all addresses: one by which others reach them
}

// open takes every address, before anything else: what is in use is then known at once.
func (o *openDoors) open(d doors) error {
	for _, at := range []place{d.http, d.grpc, d.redis, d.admin, d.peer} {
		if at.off() {
			continue
		}
		l, err := at.listen()
		if err != nil {
			return err
		}
		o.list = append(o.list, &openDoor{place: at, listener: l})
	}
	return nil
}

// of is the open door of a flag, or nil.
func (o *openDoors) of(flag string) *openDoor {
	for _, d := range o.list {
		if d.flag == flag {
			return d
		}
	}
	return nil
}

// address is where others reach the door of a flag; empty if it is off.
func (o *openDoors) address(flag string) string {
	if d := o.of(flag); d != nil {
		return reachable(d.listener, o.host)
	}
	return ""
}

// close closes some doors at once and waits for them.
func (o *openDoors) close(ctx context.Context, some func(*openDoor) bool) {
	var closing sync.WaitGroup
	for _, d := range o.list {
		if !some(d) {
			continue
		}
		closing.Go(func() {
			if d.close != nil {
				d.close(ctx)
			}
			d.listener.Close()
		})
	}
	closing.Wait()
}

func (o *openDoor) serveHTTP(s *http.Server, t *tls.Config) {
	o.serve = func(l net.Listener) error {
		if t != nil {
			s.TLSConfig = door.Adjusted(t, func(c *tls.Config) {
				c.NextProtos = []string{"http/1.1"} // first: a client that speaks both gets pages
				if s.TLSNextProto["h2"] != nil {
					c.NextProtos = append(c.NextProtos, "h2")
				}
			})
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

// serveBoth serves pages, and calls on the connections that are given to gRPC.
func (o *openDoor) serveBoth(
	pages http.Handler, calls *door.Server, given *door.Handover, t *tls.Config,
) {
	o.serveHTTP(web.NewAdminServer(pages, given.Hand), t)
	serve, closePages := o.serve, o.close
	o.serve = func(l net.Listener) error {
		var calling sync.WaitGroup
		calling.Go(func() { _ = calls.Serve(given) }) // until it is stopped, or given is closed
		err := serve(l)
		given.Close()
		calling.Wait()
		return err
	}
	o.close = func(ctx context.Context) {
		hurry := context.AfterFunc(ctx, calls.Stop)
		defer hurry()
		var both sync.WaitGroup
		both.Go(calls.GracefulStop)
		both.Go(func() { closePages(ctx) })
		both.Wait()
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
