package rpc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/native"
	"penstock/rpc/rpctest"
)

// A transcript of one key, at its owner and at another node.
func TestCheckPeekReset(t *testing.T) {
	s := newStations(t, 2, five)
	ctx := rpctest.Patience(t)
	for _, entry := range s {
		key := rpctest.OwnKey(s[0].node, map[string]int{"n1": 0, "n2": 1}[entry.member.ID])
		source := map[string]penstockv1.Source{
			"n1": penstockv1.Source_SOURCE_OWNER,
			"n2": penstockv1.Source_SOURCE_FORWARDED,
		}[entry.member.ID]
		for _, row := range []struct {
			do        string
			cost      int64
			allowed   bool
			remaining int64
		}{
			{"check", 2, true, 3},
			{"peek", 3, true, 0}, // what a check would answer
			{"peek", 4, false, 3},
			{"check", 4, false, 3},
			{"check", -1, true, 4},
			{"check", 0, true, 4},
			{"check", 4, true, 0},
			{"check", 1, false, 0},
			{"reset", 0, true, 5},
			{"check", 6, false, 5}, // never
		} {
			items := []*penstockv1.Item{rpctest.Item("five", key, row.cost)}
			var d []*penstockv1.Decision
			var err error
			switch row.do {
			case "check":
				var out *penstockv1.CheckResponse
				out, err = entry.client.Check(ctx, &penstockv1.CheckRequest{Items: items})
				d = out.GetDecisions()
			case "peek":
				var out *penstockv1.PeekResponse
				out, err = entry.client.Peek(ctx, &penstockv1.PeekRequest{Items: items})
				d = out.GetDecisions()
			case "reset":
				var out *penstockv1.ResetResponse
				out, err = entry.client.Reset(ctx, &penstockv1.ResetRequest{Items: items})
				d = out.GetDecisions()
			}
			if err != nil {
				t.Fatalf("%s: %s: %v", entry.member.ID, row.do, err)
			}
			if d[0].Allowed != row.allowed || d[0].Remaining != row.remaining || d[0].Limit != 5 ||
				d[0].LimitName != "five" || d[0].Owner != "n1" || d[0].Source != source ||
				d[0].Degraded {
				t.Errorf("%s: %s %d: %v; want allowed %t, remaining %d", entry.member.ID, row.do,
					row.cost, d[0], row.allowed, row.remaining)
			}
			if wait := d[0].RetryAfterMs; (wait > 0) != (!row.allowed && row.cost <= 5) {
				t.Errorf("%s: %s %d: retry after %d ms", entry.member.ID, row.do, row.cost, wait)
			}
		}
	}
}

func TestCostIsOneByDefault(t *testing.T) {
	s := newStations(t, 1, five)[0]
	items := []*penstockv1.Item{{Limit: "five", Key: []byte("a")}}
	out, err := s.client.Check(rpctest.Patience(t), &penstockv1.CheckRequest{Items: items})
	if err != nil || out.Decisions[0].Remaining != 4 {
		t.Errorf("check: %v, %v; want 4 remaining", out, err)
	}
	peek, err := s.client.Peek(rpctest.Patience(t), &penstockv1.PeekRequest{Items: items})
	if err != nil || peek.Decisions[0].Remaining != 4 {
		t.Errorf("peek: %v, %v; want 4 remaining", peek, err)
	}
}

// Promise: a request that the client repeats is charged once, whichever node it asks.
func TestRepeatedRequestIsChargedOnce(t *testing.T) {
	s := newStations(t, 2, five)
	it := rpctest.Item("five", rpctest.OwnKey(s[1].node, 0), 1)
	it.Id = &penstockv1.RequestId{Origin: 42, Sequence: 1}
	for range 3 {
		for _, entry := range s {
			out, err := entry.client.Check(rpctest.Patience(t),
				&penstockv1.CheckRequest{Items: []*penstockv1.Item{it}})
			if err != nil || out.Decisions[0].Remaining != 4 {
				t.Errorf("at %s: %v, %v; want 4 remaining", entry.member.ID, out, err)
			}
		}
	}
}

func TestBatchAndAtomic(t *testing.T) {
	ten := limiter.Spec{Name: "ten", Algorithm: limiter.GCRA, Limit: 10, Per: time.Hour}
	s := newStations(t, 3, five, ten)
	ctx := rpctest.Patience(t)
	var items []*penstockv1.Item
	for i := range cluster.MaxItems {
		items = append(items, rpctest.Item("five", fmt.Sprint("key-", i), int64(i%6)))
	}
	out, err := s[0].client.Check(ctx, &penstockv1.CheckRequest{Items: items})
	if err != nil {
		t.Fatal(err)
	}
	owners := map[string]int{}
	for i, d := range out.Decisions {
		if !d.Allowed || d.Remaining != 5-int64(i%6) {
			t.Fatalf("item %d: %v", i, d)
		}
		owners[d.Owner]++
	}
	if len(out.Decisions) != cluster.MaxItems || len(owners) != 3 {
		t.Errorf("%d decisions of %v", len(out.Decisions), owners)
	}

	key := rpctest.OwnKey(s[1].node, 7000)
	both := []*penstockv1.Item{rpctest.Item("five", key, 3), rpctest.Item("ten", key, 3)}
	for i, want := range []int64{7, 7} {
		out, err := s[0].client.Check(ctx, &penstockv1.CheckRequest{Items: both, Atomic: true})
		if err != nil || out.Decisions[0].Allowed != (i == 0) {
			t.Errorf("request %d: %v, %v", i, out, err)
		}
		if got := out.Decisions[1].Remaining; got != want {
			t.Errorf("request %d is answered with %d left of ten, want %d", i, got, want)
		}
		if got := remaining(t, s[2], "ten", key); got != want {
			t.Errorf("request %d: %d left of ten, want %d", i, got, want)
		}
	}
	spread := []*penstockv1.Item{
		rpctest.Item("five", rpctest.OwnKey(s[1].node, 7001), 3),
		rpctest.Item("five", rpctest.OwnKey(s[2].node, 7001), 3),
	}
	for i, want := range []int64{2, 2} {
		out, err := s[0].client.Check(ctx, &penstockv1.CheckRequest{Items: spread, Atomic: true})
		if err != nil || out.Decisions[0].Allowed != (i == 0) ||
			out.Decisions[1].Allowed != (i == 0) {
			t.Errorf("request %d of two owners: %v, %v", i, out, err)
		}
		for _, it := range spread { // charged or still set aside, it counts as spent
			if got := remaining(t, s[0], "five", string(it.Key)); got != want {
				t.Errorf("request %d of two owners: %d left, want %d", i, got, want)
			}
		}
	}
}

// Promise: all or nothing. A limit that never denies its caller must not keep the others from being
// charged, also where the owner learns of the limit by the wire.
func TestShadowHasNoSayInAtomicOverTheWire(t *testing.T) {
	dry := limiter.Spec{
		Name: "dry", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 1, Per: time.Hour, DryRun: true,
	}
	s := newStations(t, 2, five, dry)
	key := rpctest.OwnKey(s[1].node, 7100)
	allowed := 0
	for range 8 {
		out, err := s[0].client.Check(rpctest.Patience(t), &penstockv1.CheckRequest{
			Items:  []*penstockv1.Item{rpctest.Item("five", key, 1), rpctest.Item("dry", key, 1)},
			Atomic: true,
		})
		if err != nil || out.Decisions[0].Source != penstockv1.Source_SOURCE_FORWARDED {
			t.Fatalf("%v, %v", out, err)
		}
		if out.Decisions[0].Allowed && out.Decisions[1].Allowed {
			allowed++
		}
	}
	if allowed != 5 {
		t.Errorf("admitted %d of 8, want 5", allowed)
	}
}

func TestInlineLimit(t *testing.T) {
	s := newStations(t, 2, five)
	for i := range 4 {
		out, err := s[i%2].client.Check(rpctest.Patience(t),
			&penstockv1.CheckRequest{Items: []*penstockv1.Item{
				{Inline: rpctest.Inline(func(*penstockv1.InlineLimit) {}), Key: []byte("a")},
				{
					Inline: rpctest.Inline(func(in *penstockv1.InlineLimit) { in.Name = "mine" }),
					Key:    []byte("a"),
				},
				{Inline: rpctest.Inline(func(in *penstockv1.InlineLimit) {
					in.Name, in.Algorithm, in.Burst, in.Anchor = "bucket",
						penstockv1.Algorithm_ALGORITHM_GCRA, 2, 0
				}), Key: []byte("a")},
			}})
		if err != nil {
			t.Fatal(err)
		}
		for k, d := range out.Decisions {
			want := []string{"inline", "mine", "bucket"}[k]
			if d.LimitName != want || d.Allowed != (i < int(d.Limit)) ||
				d.Limit != []int64{3, 3, 2}[k] {
				t.Errorf("request %d: %v, want limit %s", i, d, want)
			}
		}
	}
}

// Promise: bad input gets a clear error that names the field, and nothing is charged: at Check,
// Peek, Reset and on a stream.
func TestBadInput(t *testing.T) {
	s := newStations(t, 2, five)
	good := rpctest.Item("five", rpctest.OwnKey(s[0].node, 0), 1)
	other := rpctest.Item("five", rpctest.OwnKey(s[1].node, 0), 1)
	bad := func(in *penstockv1.InlineLimit) []*penstockv1.Item {
		return []*penstockv1.Item{good, other, {Inline: in, Key: []byte("a")}}
	}
	stream, err := s[0].client.CheckStream(rpctest.Patience(t))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.CloseSend()
	for i, c := range []struct {
		name  string
		items []*penstockv1.Item
		code  codes.Code
		text  string
	}{
		{"no items", nil, codes.InvalidArgument, "items: has 0 items"},
		{
			"1001 items", slices.Repeat([]*penstockv1.Item{good}, 1001), codes.InvalidArgument,
			"items: has 1001 items",
		},
		{
			"empty key",
			[]*penstockv1.Item{good, rpctest.Item("five", "", 1)},
			codes.InvalidArgument,
			"items[1].key: is empty",
		},
		{
			"2 KiB key",
			[]*penstockv1.Item{good, rpctest.Item("five", strings.Repeat("k", 2048), 1)},
			codes.InvalidArgument, "items[1].key: has 2048 bytes",
		},
		{
			"unknown limit",
			[]*penstockv1.Item{good, rpctest.Item("six", "a", 1)},
			codes.NotFound,
			`items[1].limit: no limit is named "six"`,
		},
		{
			"no limit",
			[]*penstockv1.Item{good, rpctest.Item("", "a", 1)},
			codes.InvalidArgument,
			"items[1].limit: is missing",
		},
		{"two limits", []*penstockv1.Item{{
			Limit:  "five",
			Inline: rpctest.Inline(func(*penstockv1.InlineLimit) {}), Key: []byte("a"),
		}}, codes.InvalidArgument, "items[0].limit: is given together"},
		{
			"limit of 0", bad(rpctest.Inline(func(in *penstockv1.InlineLimit) { in.Limit = 0 })),
			codes.InvalidArgument, "items[2].inline.limit: is 0",
		},
		{
			"no window", bad(rpctest.Inline(func(in *penstockv1.InlineLimit) { in.PerMs = 0 })),
			codes.InvalidArgument, "items[2].inline.per: is 0s",
		},
		{"a window longer than time", bad(rpctest.Inline(func(in *penstockv1.InlineLimit) {
			in.PerMs = 1 << 62
		})), codes.InvalidArgument, "items[2].inline.per: is 2562047h"},
		{
			"no algorithm",
			bad(rpctest.Inline(func(in *penstockv1.InlineLimit) { in.Algorithm = 0 })),
			codes.InvalidArgument, "items[2].inline.algorithm",
		},
		{
			"unknown algorithm",
			bad(rpctest.Inline(func(in *penstockv1.InlineLimit) { in.Algorithm = 257 })),
			codes.InvalidArgument, "items[2].inline.algorithm",
		},
		{
			"unknown anchor",
			bad(rpctest.Inline(func(in *penstockv1.InlineLimit) { in.Anchor = 3 })),
			codes.InvalidArgument, "items[2].inline.anchor",
		},
		{
			"unknown on_error",
			bad(rpctest.Inline(func(in *penstockv1.InlineLimit) { in.OnError = -1 })),
			codes.InvalidArgument, "items[2].inline.on_error",
		},
		{"long name", bad(rpctest.Inline(func(in *penstockv1.InlineLimit) {
			in.Name = strings.Repeat("n",
				257)
		})), codes.InvalidArgument, "items[2].inline.name: has 257 bytes"},
		{
			"name of a limit",
			bad(rpctest.Inline(func(in *penstockv1.InlineLimit) { in.Name = "five" })),
			codes.InvalidArgument, "items[2].inline.name",
		},
	} {
		check := func(how string, code codes.Code, text string) {
			if code != c.code || !strings.Contains(text, c.text) {
				t.Errorf("%s: %s: %s %q, want %s %q", c.name, how, code, text, c.code, c.text)
			}
		}
		_, err := s[0].client.Check(rpctest.Patience(t), &penstockv1.CheckRequest{Items: c.items})
		check("Check", status.Code(err), status.Convert(err).Message())
		_, err = s[0].client.Peek(rpctest.Patience(t), &penstockv1.PeekRequest{Items: c.items})
		check("Peek", status.Code(err), status.Convert(err).Message())
		_, err = s[0].client.Reset(rpctest.Patience(t), &penstockv1.ResetRequest{Items: c.items})
		check("Reset", status.Code(err), status.Convert(err).Message())
		if err := stream.Send(&penstockv1.CheckStreamRequest{
			Tag:   uint64(i),
			Check: &penstockv1.CheckRequest{Items: c.items},
		}); err != nil {
			t.Fatal(err)
		}
		out, err := stream.Recv()
		if err != nil || out.Tag != uint64(i) {
			t.Fatalf("%s: the stream answers %v, %v", c.name, out, err)
		}
		check("CheckStream", codes.Code(out.Error.GetCode()), out.Error.GetMessage())
	}
	for _, it := range []*penstockv1.Item{good, other} {
		if left := remaining(t, s[0], "five", string(it.Key)); left != 5 {
			t.Errorf("requests in error charged: %d left of 5", left)
		}
	}
	huge := &penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("five",
		strings.Repeat("k", 2<<20), 1)}}
	if _, err := s[0].client.Check(rpctest.Patience(t),
		huge); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a request of more than %d bytes: %v", 2<<20, err)
	}
}

// The largest request that is right fits through the door, and through the one between nodes.
func TestLargestRequest(t *testing.T) {
	s := newStations(t, 2, five)
	var items []*penstockv1.Item
	for i := range cluster.MaxItems {
		items = append(items, &penstockv1.Item{
			Key: fmt.Appendf(nil, "%01024d", i),
			Inline: rpctest.Inline(func(in *penstockv1.InlineLimit) {
				in.Name = fmt.Sprintf("%0256d", i)
			}),
			Id: &penstockv1.RequestId{Origin: 1<<63 - 1, Sequence: 1<<63 + uint64(i)},
		})
	}
	for _, entry := range s {
		out, err := entry.client.Check(rpctest.Patience(t), &penstockv1.CheckRequest{Items: items})
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range out.Decisions {
			if d.Degraded || !d.Allowed || d.Remaining != 2 {
				t.Fatalf("item %d at %s: %v", i, entry.member.ID, d)
			}
		}
	}
}

// TestStream sends many requests at once; a door that closes answers those that it took in and ends
// the stream.
func TestStream(t *testing.T) {
	s := newStations(t, 2, tenThousand)
	stream, err := s[0].client.CheckStream(rpctest.Patience(t))
	if err != nil {
		t.Fatal(err)
	}
	const requests = 1000
	go func() {
		for i := range requests {
			stream.Send(&penstockv1.CheckStreamRequest{
				Tag: uint64(i),
				Check: &penstockv1.CheckRequest{
					Items: []*penstockv1.Item{
						rpctest.Item("big", rpctest.OwnKey(s[i%2].node, 0), 1),
					},
				}, TimeoutMs: 60_000,
			})
		}
	}()
	seen := map[uint64]bool{}
	least := map[string]int64{}
	for range requests {
		out, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		d := out.Check.GetDecisions()
		if len(d) != 1 || !d[0].Allowed || d[0].Degraded || seen[out.Tag] {
			t.Fatalf("answer %v; seen before: %t", out, seen[out.Tag])
		}
		seen[out.Tag] = true
		if left, ok := least[d[0].Owner]; !ok || d[0].Remaining < left {
			least[d[0].Owner] = d[0].Remaining
		}
	}
	if least["n1"] != 9500 || least["n2"] != 9500 {
		t.Errorf("after 500 takes each these remain: %v", least)
	}
	s[0].doors[1].GracefulStop() // returns although the stream is open
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want Unavailable", err)
	}
}

func TestHealth(t *testing.T) {
	s := newStation(t, "n1", 1, testCluster)
	health := healthv1.NewHealthClient(s.conn)
	ctx := rpctest.Patience(t)
	want := func(service string, want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		out, err := health.Check(ctx, &healthv1.HealthCheckRequest{Service: service})
		if err != nil || out.Status != want {
			t.Errorf("health of %q: %v, %v; want %s", service, out, err, want)
		}
	}
	watch, err := health.Watch(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	told := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if out, err := watch.Recv(); err != nil || out.Status != want {
			t.Errorf("Watch tells %v, %v; want %s", out, err, want)
		}
	}
	want("", healthv1.HealthCheckResponse_NOT_SERVING)
	told(healthv1.HealthCheckResponse_NOT_SERVING)
	s.see([]cluster.Member{s.member})
	want("", healthv1.HealthCheckResponse_SERVING)
	want("penstock.v1.RateLimiter", healthv1.HealthCheckResponse_SERVING)
	told(healthv1.HealthCheckResponse_SERVING)
	if _, err := health.Check(ctx,
		&healthv1.HealthCheckRequest{Service: "x"}); status.Code(err) != codes.NotFound {
		t.Errorf("health of an unknown service: %v", err)
	}
	leaving := s.member
	leaving.State = cluster.StateLeaving
	s.see([]cluster.Member{leaving})
	want("penstock.v1.Admin", healthv1.HealthCheckResponse_NOT_SERVING)
	told(healthv1.HealthCheckResponse_NOT_SERVING)
	s.doors[1].GracefulStop()
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("Watch ended with %v, want Unavailable", err)
	}
}

func TestNotJoined(t *testing.T) {
	s := newStation(t, "n1", 1, testCluster)
	admin := penstockv1.NewAdminClient(s.conn)
	_, check := s.client.Check(rpctest.Patience(t),
		&penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("five", "a", 1)}})
	_, members := admin.Members(rpctest.Patience(t), &penstockv1.MembersRequest{})
	_, ring := admin.Ring(rpctest.Patience(t), &penstockv1.RingRequest{Key: []byte("a")})
	for call, err := range map[string]error{"Check": check, "Members": members, "Ring": ring} {
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not joined") {
			t.Errorf("%s: %v, want Unavailable", call, err)
		}
	}
}

func TestMembersAndRing(t *testing.T) {
	s := newStations(t, 3)
	admin := penstockv1.NewAdminClient(s[1].conn)
	ctx := rpctest.Patience(t)
	out, err := admin.Members(ctx, &penstockv1.MembersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range out.Members {
		if m.Name != s[i].member.ID || m.State != "active" || m.Role != "member" ||
			m.PeerAddress != s[i].member.PeerAddr ||
			m.Boot != uint64(i+1) || m.Self != (i == 1) {
			t.Errorf("member %d: %v", i, m)
		}
	}
	key := rpctest.OwnKey(s[2].node, 0)
	where, err := admin.Ring(ctx, &penstockv1.RingRequest{Key: []byte(key)})
	if err != nil || where.Owner != "n3" || where.Heir == "" || where.Heir == "n3" ||
		where.Ring != out.Ring || len(out.Ring) != 16 {
		t.Errorf("ring of a key of n3: %v, %v", where, err)
	}
	for _, bad := range []string{"", strings.Repeat("k", 1025)} {
		if _, err := admin.Ring(ctx,
			&penstockv1.RingRequest{Key: []byte(bad)}); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), "key: ") {
			t.Errorf("ring of a key of %d bytes: %v", len(bad), err)
		}
	}
}

// Promise: with a token configured, nobody without it gets further than health.
func TestToken(t *testing.T) {
	s := newStations(t, 1, five)[0]
	const secret = "a-token-of-some-length"
	addr := s.open(native.NewServer(native.Config{Node: s.node, Clock: s.clock, AuthToken: secret}))
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := penstockv1.NewRateLimiterClient(conn)
	for header, code := range map[string]codes.Code{
		"":                       codes.Unauthenticated,
		secret:                   codes.Unauthenticated,
		"Bearer":                 codes.Unauthenticated,
		"Bearer x":               codes.Unauthenticated,
		"Basic " + secret:        codes.Unauthenticated,
		"Bearer " + secret + "x": codes.Unauthenticated,
		"Bearer " + secret:       codes.OK,
		"bearer " + secret:       codes.OK,
	} {
		ctx := rpctest.Patience(t)
		if header != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", header)
		}
		_, err := client.Check(ctx,
			&penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("five", "a", 0)}})
		if status.Code(err) != code {
			t.Errorf("Check with %q: %v, want %s", header, err, code)
		}
		stream, err := client.CheckStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		stream.CloseSend()
		if _, err := stream.Recv(); code != codes.OK && status.Code(err) != code {
			t.Errorf("CheckStream with %q: %v, want %s", header, err, code)
		}
	}
	if _, err := healthv1.NewHealthClient(conn).Check(rpctest.Patience(t),
		&healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health without a token: %v", err)
	}
}

func TestReflection(t *testing.T) {
	s := newStations(t, 1)[0]
	ctx := rpctest.Patience(t)
	stream, err := reflectionv1.NewServerReflectionClient(s.conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stream.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	})
	out, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	names := fmt.Sprint(out.GetListServicesResponse().GetService())
	for _, want := range []string{
		"penstock.v1.RateLimiter", "penstock.v1.Admin",
		"grpc.health.v1.Health",
	} {
		if !strings.Contains(names, want) {
			t.Errorf("%s is missing in %s", want, names)
		}
	}
}
