package redis

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A pipeline that is a transaction: commands run in their order, and one reply has all of theirs.
func TestGoRedisTransaction(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		ctx := patience(t)
		c := redis.NewClient(&redis.Options{Addr: nodes[0].redis, Protocol: protocol})
		defer c.Close()
		key := fmt.Sprint("transaction", protocol)
		var first, second *redis.Cmd
		if _, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			first, second = p.Do(ctx, throttle(key)...), p.Do(ctx, throttle(key)...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		one, err := first.Int64Slice()
		two, err2 := second.Int64Slice()
		if err != nil || err2 != nil || one[2] != 9 || two[2] != 8 {
			t.Errorf("%v, %v; %v, %v", one, err, two, err2)
		}
		if n, err := c.Exists(ctx, key).Result(); n != 1 || err != nil {
			t.Errorf("EXISTS: %d, %v", n, err)
		}
		if n, err := c.Del(ctx, key).Result(); n != 1 || err != nil {
			t.Errorf("DEL: %d, %v", n, err)
		}
		if d, err := c.TTL(ctx, key).Result(); d != -2 || err != nil {
			t.Errorf("TTL: %v, %v", d, err)
		}
		if m, err := c.ConfigGet(ctx, "databases").Result(); m["databases"] != "1" || err != nil {
			t.Errorf("CONFIG GET: %v, %v", m, err)
		}
	}
}

// redis-py's pipeline is a transaction unless told otherwise.
const pythonPipeline = `
import redis, sys
r = redis.Redis(port=int(sys.argv[1]))
p = r.pipeline()
for _ in range(3):
    p.execute_command("CL.THROTTLE", "python", 1, 1, 3600)
p.execute_command("RL.REDUCE", "python", 5, 3600)
print(p.execute())
print(r.exists("python"), r.delete("python"), r.ttl("python"), r.config_get("databases"))
`

func TestRedisPy(t *testing.T) {
	python := "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import redis").Run(); err != nil {
		t.Skip("Debian's python3-redis is not installed")
	}
	_, port, _ := net.SplitHostPort(nodes[1].redis)
	want := "[[0, 2, 1, -1, 3600], [0, 2, 0, -1, 7200], [1, 2, 0, 3600, 7200], 5]\n1 1 -2 " +
		"{'databases': '1'}\n"
	if got := tool(t, python, "-c", pythonPipeline, port); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// redis-cli queues what it reads between MULTI and EXEC.
func TestRedisCLITransaction(t *testing.T) {
	_, port, _ := net.SplitHostPort(nodes[2].redis)
	c := exec.Command("redis-cli", "-p", port)
	c.Stdin = strings.NewReader("MULTI\nRL.REDUCE cli-multi 2 3600\nRL.GET cli-multi 2 " +
		"3600\nEXEC\nCONFIG GET databases\n")
	out, err := c.CombinedOutput()
	if want := "OK\nQUEUED\nQUEUED\n2\n1\ndatabases\n1\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}
