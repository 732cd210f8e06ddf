package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	penstockv1 "penstock/proto/penstock/v1"
)

// latencies are the answers to a client that behaves.
type latencies struct {
	All           []time.Duration
	Asked, Failed int
}

// p99 is in milliseconds.
func (l *latencies) p99() float64 {
	if len(l.All) == 0 {
		return 0
	}
	slices.Sort(l.All)
	return l.All[len(l.All)*99/100].Seconds() * 1000
}

// behave has a process of its own ask for so long: beside hundreds of goroutines that attack
// without a pause, a client in their process would wait for them, and not for the node.
func behave(door, address string, length time.Duration) (l latencies) {
	self, err := os.Executable()
	if err != nil {
		return l
	}
	child := exec.Command(self, "-behave", address, "-door", door, "-for", length.String())
	child.Stderr = os.Stderr
	if text, err := child.Output(); err == nil {
		_ = json.Unmarshal(text, &l)
	}
	return l
}

// busy starts a process that uses a processor until end is called.
func busy() (end func(), err error) {
	child := exec.Command("sh", "-c", "while :; do :; done")
	if err := child.Start(); err != nil {
		return nil, err
	}
	return func() { _ = child.Process.Kill(); _ = child.Wait() }, nil
}

// clientNice is the priority of the process of the client that behaves.
const clientNice = -15

// patience is how long a client that behaves waits for an answer.
const patience = 2 * time.Second

// ask asks 100 times a second from an address of its own, and prints latencies.
func ask(door, address string, length time.Duration) error {
	// In the kernel's queue it must not wait behind an attacker that would be on other machines.
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, clientNice) // as it is, where it may not
	var l latencies
	once, err := asker(door, address)
	if err != nil {
		return err
	}
	for end, i := time.Now().Add(length), 0; time.Now().Before(end); i++ {
		began := time.Now()
		if l.Asked++; once(fmt.Sprintf("good%d", i)) != nil {
			l.Failed++
		}
		l.All = append(l.All, time.Since(began))
		time.Sleep(max(0, 10*time.Millisecond-time.Since(began)))
	}
	return json.NewEncoder(os.Stdout).Encode(l)
}

// asker returns a function that asks once at a door, over a connection that it keeps.
func asker(door, address string) (once func(key string) error, err error) {
	switch door {
	case "grpc":
		return askerGRPC(address)
	case "redis":
		return askerRedis(address), nil
	}
	c := &http.Client{Timeout: patience, Transport: from("127.0.0.2")}
	return func(key string) error {
		answer, err := getFrom(c, door, fmt.Sprintf("%s/v1/check?limit=demo&key=%s", address, key))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); answer.StatusCode != http.StatusOK {
			return errors.Join(err, errors.New(answer.Status))
		}
		return nil
	}, nil
}

func askerGRPC(address string) (once func(key string) error, err error) {
	conn, err := dialGRPC(address, grpc.WithContextDialer(
		func(ctx context.Context, address string) (net.Conn, error) {
			return dialerFrom("127.0.0.2").DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		return nil, err
	}
	return func(key string) error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		_, err := penstockv1.NewRateLimiterClient(conn).Check(ctx, demo(key))
		return err
	}, nil
}

func askerRedis(address string) (once func(key string) error) {
	var conn net.Conn
	var in *bufio.Reader
	exchange := func(key string) error {
		if conn == nil {
			c, err := dialerFrom("127.0.0.2").Dial("tcp", address)
			if err != nil {
				return err
			}
			conn, in = c, bufio.NewReader(c)
		}
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := io.WriteString(conn, throttle(key, 60)); err != nil {
			return err
		}
		line, err := in.ReadString('\n')
		if err == nil && line[0] == '-' {
			return errors.New(line)
		}
		for i := 0; i < 5 && err == nil; i++ {
			_, err = in.ReadString('\n')
		}
		return err
	}
	return func(key string) error {
		err := exchange(key)
		if err != nil && conn != nil {
			_ = conn.Close()
			conn = nil
		}
		return err
	}
}
