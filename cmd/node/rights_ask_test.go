package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"penstock/rpc/rpctest"
)

// askGRPC calls a method with a message in JSON.
func (d *rightsDoors) askGRPC(t *testing.T, c caller, door, request string) string {
	t.Helper()
	method, body, _ := strings.Cut(request, " ")
	at := c.name + c.certificate + " at " + door
	if d.calls[at] == nil {
		d.calls[at] = rpctest.DialTLS(t, d.at(door), d.tls(c), c.token)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := d.calls[at].Call(ctx, method, body)
	code := rpctest.CodeOf(err)
	switch code {
	case "PermissionDenied":
		return "missing"
	case "Unauthenticated":
		return "unknown"
	case "Unimplemented":
		return "absent"
	case "Unavailable":
		return "closed"
	case "Internal", "Unknown", "DeadlineExceeded", "Canceled":
		return err.Error()
	}
	return "passed"
}

// askRedis sends a command on a connection of its own.
func (d *rightsDoors) askRedis(t *testing.T, c caller, request string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", d.at("redis"), d.tls(c))
	if err != nil {
		return "closed"
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	say := func(line string) string {
		_, _ = io.WriteString(conn, rpctest.Command(strings.Fields(line)...))
		reply, err := in.ReadString('\n')
		if err != nil {
			return "closed"
		}
		return reply
	}
	if c.token != "" {
		say("AUTH " + c.token)
	}
	switch reply := say(request); {
	case strings.HasPrefix(reply, "-NOAUTH "):
		return "unknown"
	case strings.HasPrefix(reply, "-NOPERM "):
		return "missing"
	case strings.HasPrefix(reply, "-Unknown command"):
		return "absent"
	case reply == "closed":
		return reply
	}
	return "passed"
}

// nameOfRequest is the method, the page or the command of a request.
func nameOfRequest(door, request string) string {
	name, rest, _ := strings.Cut(request, " ")
	if door == "http" || door == "admin" {
		path, _, _ := strings.Cut(rest, " ")
		name, _, _ = strings.Cut(path, "?")
	}
	return strings.ToLower(name)
}

// everything is what the doors have: methods by reflection, pages and commands by their tables.
func (d *rightsDoors) everything(t *testing.T) (names []string) {
	t.Helper()
	for _, door := range []string{"grpc", "calls"} {
		methods, err := d.calls["rootguest at "+door].Methods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range methods {
			names = append(names, strings.ToLower(m))
		}
	}
	for file, pattern := range map[string]string{
		"../../rpc/web/rights.go":     `"(?:GET )?(/[^"]*)": *(?:byItem|access)`,
		"../../docs/openapi.yaml":     `(?m)^  (/\S+):$`,
		"../../rpc/redis/commands.go": `\{"([a-z.]+)", \d`,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
		if len(found) < 15 {
			t.Errorf("%s: only %d names are found", file, len(found))
		}
		for _, f := range found {
			// hello and auth say which client it is
			if name := strings.ToLower(f[1]); name != "hello" && name != "auth" {
				names = append(names, name)
			}
		}
	}
	return names
}
