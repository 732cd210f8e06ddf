// Gubernator runs a Gubernator as its own program does, with its default settings, except that it is told who the peers
// are. Where Gubernator looks for them itself it listens on one port of all interfaces, so several nodes cannot be on one
// machine, and it would not stay on loopback.
//
//	gubernator GRPC-ADDRESS HTTP-ADDRESS PEER…       each the gRPC address of a node, this one among them
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mailgun/gubernator/v2"
	"github.com/mailgun/holster/v4/tracing"
	"github.com/sirupsen/logrus"
)

func main() {
	if len(os.Args) < 4 {
		log.Fatal("give a gRPC address, an HTTP address, and the gRPC addresses of all peers")
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		log.Fatal(err)
	}
}

func run(grpc, http string, peers []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := tracing.InitTracing(ctx, "github.com/mailgun/gubernator/v2", tracing.WithLevel(gubernator.GetTracingLevel()))
	if err != nil {
		return err
	}
	conf, err := gubernator.SetupDaemonConfig(logrus.StandardLogger(), nil)
	if err != nil {
		return err
	}
	conf.GRPCListenAddress, conf.HTTPListenAddress, conf.AdvertiseAddress = grpc, http, grpc
	conf.PeerDiscoveryType = "none"
	starting, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	daemon, err := gubernator.SpawnDaemon(starting, conf)
	if err != nil {
		return err
	}
	defer daemon.Close()
	var infos []gubernator.PeerInfo
	for _, p := range peers {
		infos = append(infos, gubernator.PeerInfo{GRPCAddress: p})
	}
	daemon.PeerInfo = gubernator.PeerInfo{GRPCAddress: grpc}
	daemon.SetPeers(infos)
	<-ctx.Done()
	return nil
}
