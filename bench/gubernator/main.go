// Gubernator runs a Gubernator as its own program does, with its default settings, except that it
// gets a fixed list of peers. With its own discovery it listens on one port of all interfaces, so
// several nodes cannot be on one machine, and it would not stay on loopback.
//
//	gubernator GRPC-ADDRESS HTTP-ADDRESS PEER…  a PEER is the gRPC address of a node, also its own
//	gubernator in-process v1 CALLERS TIME       measures its V1Instance without a server, as JSON
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mailgun/gubernator/v2"
	"github.com/mailgun/holster/v4/tracing"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"

	"penstock/bench/inprocess"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == inprocess.Verb {
		if err := inProcess(os.Args[3:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	if len(os.Args) < 4 {
		log.Fatal("give a gRPC address, an HTTP address, and the gRPC addresses of all peers")
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		log.Fatal(err)
	}
}

func run(door, http string, peers []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := tracing.InitTracing(ctx, "github.com/mailgun/gubernator/v2",
		tracing.WithLevel(gubernator.GetTracingLevel()))
	if err != nil {
		return err
	}
	conf, err := gubernator.SetupDaemonConfig(logrus.StandardLogger(), nil)
	if err != nil {
		return err
	}
	conf.GRPCListenAddress, conf.HTTPListenAddress, conf.AdvertiseAddress = door, http, door
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
	daemon.PeerInfo = gubernator.PeerInfo{GRPCAddress: door}
	daemon.SetPeers(infos)
	<-ctx.Done()
	return nil
}

// inProcess measures a V1Instance that owns all keys, as a program does that has it inside.
func inProcess(args []string) error {
	const me = "127.0.0.1:1" // nobody is asked there: this instance is the only peer
	v1, err := gubernator.NewV1Instance(gubernator.Config{
		GRPCServers: []*grpc.Server{grpc.NewServer()},
	})
	if err != nil {
		return err
	}
	defer v1.Close()
	v1.SetPeers([]gubernator.PeerInfo{{GRPCAddress: me, IsOwner: true}})
	ctx := context.Background()
	return inprocess.Main(args, os.Stdout, func() func(string) error {
		return func(key string) error {
			out, err := v1.GetRateLimits(ctx,
				&gubernator.GetRateLimitsReq{Requests: []*gubernator.RateLimitReq{
					{
						Name: "bench", UniqueKey: key, Hits: 1, Limit: 1_000_000_000,
						Duration: 3_600_000,
					},
				}})
			if err != nil {
				return err
			}
			if d := out.Responses[0]; d.Error != "" || d.Status != gubernator.Status_UNDER_LIMIT {
				return fmt.Errorf("a request is refused that is within its limit: %v", d)
			}
			return nil
		}
	})
}
