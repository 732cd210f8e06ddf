package judge

import (
	"cmp"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// at makes an op of one unit that is allowed, between two instants in ms.
func at(start, end int, remaining int64, change ...func(*Op)) *Op {
	o := &Op{
		Kind: Take, Door: "grpc", Node: "n1", Limit: "ten", Key: "k", Cost: 1, Mark: Unmarked,
		Allowed: true,
		Start:   time.Duration(start) * ms, End: time.Duration(end) * ms, Remaining: remaining,
		Owner: "n2", Source: "forwarded",
	}
	for _, f := range change {
		f(o)
	}
	return o
}

func denied(o *Op) { o.Allowed = false }
func peek(o *Op)   { o.Kind, o.Cost = Peek, 0 }
func unheld(o *Op) {
	o.Failed = "NotFound: there is no hold of this id, or not any " +
		"more"
}
func failed(o *Op)             { o.Failed = "no answer" }
func redis(o *Op)              { o.Mark, o.Owner, o.Source = Unknown, "", "" }
func refused(o *Op)            { o.Refused = true }
func id(s string) func(*Op)    { return func(o *Op) { o.ID = s } }
func by(s string) func(*Op)    { return func(o *Op) { o.Node = s } }
func number(n int) func(*Op)   { return func(o *Op) { o.Number = n } }
func got(n int) func(*Op)      { return func(o *Op) { o.Hold = n } }
func of(s string) func(*Op)    { return func(o *Op) { o.Limit = s } }
func cost(n int64) func(*Op)   { return func(o *Op) { o.Cost = n } }
func hold(o *Op)               { o.Kind = Hold }
func promised(o *Op)           { o.Vague = true }
func settle(n int64) func(*Op) { return func(o *Op) { o.Kind, o.Held = Settle, n } }

func from(s string) func(*Op) { return func(o *Op) { o.Owner = s } }

func marked(bound int64) func(*Op) {
	return func(o *Op) { o.Mark, o.Source, o.Bound = Marked, "fallback", bound }
}

// unsure is the mark of a deciding node that may have forgotten.
func unsure(bound int64) func(*Op) {
	return func(o *Op) { o.Mark, o.Bound = Marked, bound }
}

var testLimits = []Limit{
	{Name: "ten", Capacity: 10, Exact: true},
	{Name: "sync", Capacity: 10, Exact: true, Sync: true},
	{Name: "loose", Capacity: 2},
	{Name: "rate", Capacity: 2, PerSecond: 10},
	{Name: "permits", Capacity: 1, Permits: true},
}

// killed is a crash of n2 at 1 s.
func killed() *Fault {
	return &Fault{
		Kind: "kill", Nodes: []string{"n2"}, Start: 1000 * ms, Struck: 1010 * ms, End: 3000 * ms,
		Settled: 3000 * ms,
		Forgets: true, Slack: 110 * ms, Marks: true, Gone: true, Again: 250 * ms,
	}
}

// pair is a crash of n2 and n3 at 1 s.
func pair() *Fault {
	f := killed()
	f.Kind, f.Nodes = "kill-pair", []string{"n2", "n3"}
	return f
}

// copied is a crash of two where a third one had a copy of all.
func copied() *Fault {
	f := pair()
	f.Copied = true
	return f
}

// oneOfTwo is a cut of two from the others where there are two copies.
func oneOfTwo() *Fault {
	f := cut()
	f.Nodes, f.Copied, f.OneOfTwo = []string{"n2", "n3"}, true, true
	return f
}

// agentStopped is an agent, n2, that stands still.
func agentStopped() *Fault {
	f := stopped()
	f.Forgets, f.Again, f.Only = false, 0, true
	return f
}

// alone is a crash of a node that had the only counters.
func alone() *Fault {
	f := killed()
	f.Alone = true
	return f
}

// stopped is a node that stands still from 1 to 3 s.
func stopped() *Fault {
	f := killed()
	f.Kind, f.Again, f.Heal = "stop", 1000*ms, 1000*ms
	return f
}

func cut() *Fault {
	f := killed()
	f.Kind, f.Gone, f.Cut, f.After, f.End, f.Heal = "cut-off", false, true, 1300*ms, 6000*ms,
		1000*ms
	f.Settled, f.Again = 7000*ms, 1000*ms
	return f
}

// cutFor is a cut after which its node may answer from its share for so many milliseconds; all else
// is right again a second before.
func cutFor(heal time.Duration) *Fault {
	f := cut()
	f.Heal, f.Settled = heal*ms, f.End
	return f
}

// undone is a cut of which the undoing began then, in milliseconds, and took until its end.
func undone(began time.Duration) *Fault {
	f := cut()
	f.Undone = began * ms
	return f
}

func left() *Fault {
	return &Fault{
		Kind: "leave", Nodes: []string{"n2"}, Start: 1000 * ms, Struck: 2000 * ms,
		End: 2000 * ms, Settled: 3000 * ms,
	}
}

// many are n right answers from an instant on, a millisecond apart, to keys of their own.
func many(n, from int, change ...func(*Op)) (ops []*Op) {
	for i := range n {
		o := at(from+i, from+i+1, 9, change...)
		o.Key = "many" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		ops = append(ops, o)
	}
	return ops
}

// Each row is a history, and the promise that it breaks; none if it keeps all. Rows of one promise
// stand together: what is just allowed, and what is not.
func TestHistories(t *testing.T) {
	for _, x := range []struct {
		name  string
		ops   []*Op
		fault *Fault
		rule  string // empty: none
		words string // in the contradiction
	}{
		{"in turn", []*Op{at(0, 1, 9), at(2, 3, 8), at(4, 5, 8, peek)}, nil, "", ""},
		{
			"at the same time, in another order",
			[]*Op{at(0, 9, 7), at(0, 9, 9), at(1, 8, 8)},
			nil,
			"", "",
		},
		{
			"a count is lost",
			[]*Op{at(0, 1, 9), at(2, 3, 9)},
			nil, "nothing is lost",
			"at least 1 units",
		},
		{
			"two at once get the same unit",
			[]*Op{at(0, 9, 9), at(1, 8, 9)},
			nil, "nothing is lost",
			"",
		},
		{
			"lost, as a look finds",
			[]*Op{at(0, 1, 7, cost(3)), at(2, 3, 9, peek)},
			nil,
			"nothing is lost", "at least 2",
		},
		{
			"all that knew it are killed, and Redis has no word for the mark",
			[]*Op{at(0, 1, 7, cost(3)), at(5000, 5001, 9, redis), at(5002, 5003, 8, unsure(10))},
			pair(), "", "",
		},
		{
			"all that knew it are killed, and Redis alone is asked",
			[]*Op{at(0, 1, 7, cost(3)), at(5000, 5001, 9, redis)},
			pair(), "", "",
		},
		{
			"another door says that it has outlived both",
			[]*Op{at(0, 1, 7, cost(3)), at(4990, 4991, 6), at(5000, 5001, 9, redis)},
			pair(), "nothing is lost", "",
		},
		{
			"one that knew it lives",
			[]*Op{at(0, 1, 7, cost(3)), at(5000, 5001, 9, redis)},
			killed(), "nothing is lost", "",
		},
		{
			"a repeat has the mark of the first answer",
			[]*Op{at(1100, 1101, 9, marked(10), id("a")), at(4000, 4001, 9, unsure(10), id("a"))},
			killed(), "", "",
		},
		{
			"another request has not",
			[]*Op{at(1100, 1101, 9, marked(10), id("a")), at(4000, 4001, 9, unsure(10), id("b"))},
			killed(), "nothing is marked", "",
		},
		{
			"lost while a node leaves",
			[]*Op{at(0, 1, 9), at(990, 995, 8), at(2100, 2101, 8)},
			left(),
			"nothing is lost", "",
		},
		{"charged twice", []*Op{at(0, 1, 9), at(2, 3, 7)}, nil, "charged once", "at least 1 units"},
		{"denied too early", []*Op{at(0, 1, 9), at(2, 3, 9, denied)}, nil, "one counter", ""},
		{
			"denied when it is used up",
			[]*Op{at(0, 1, 0, cost(10)), at(2, 3, 0, denied)},
			nil, "",
			"",
		},
		{"a request without an answer may be charged", []*Op{
			at(0, 1, 9), at(1001, 1100, 0, failed),
			at(1600, 1601, 7),
		}, killed(), "", ""},
		{
			"… or not",
			[]*Op{at(0, 1, 9), at(1001, 1100, 0, failed), at(1600, 1601, 8)},
			killed(), "",
			"",
		},
		{
			"… but not before it was sent",
			[]*Op{at(0, 1, 8), at(1001, 1100, 0, failed)},
			killed(),
			"charged once", "",
		},

		{
			"a crash forgets what is new",
			[]*Op{at(0, 1, 9), at(950, 951, 8), at(1200, 1201, 8)},
			killed(), "", "",
		},
		{
			"… also if nobody looks for long",
			[]*Op{at(0, 1, 9), at(950, 951, 8), at(9000, 9001, 9, peek)},
			killed(), "", "",
		},
		{
			"… and no more",
			[]*Op{at(0, 1, 9), at(950, 951, 8), at(9000, 9001, 10, peek)},
			killed(),
			"nothing is lost", "at least 1",
		},
		{
			"… not what is old",
			[]*Op{at(0, 1, 9), at(500, 501, 8), at(1200, 1201, 8)},
			killed(),
			"nothing is lost", "at least 1",
		},
		{"… no more than is new", []*Op{
			at(0, 1, 9), at(500, 501, 8), at(950, 951, 7),
			at(1200, 1201, 8),
		}, killed(), "nothing is lost", "excuses 1"},
		{"… nothing of another owner", []*Op{
			at(950, 951, 9, func(o *Op) { o.Owner = "n3" }),
			at(1200, 1201, 9),
		}, killed(), "nothing is lost", ""},
		{
			"… nothing under sync",
			[]*Op{at(950, 951, 9, of("sync")), at(1200, 1201, 9, of("sync"))},
			killed(), "nothing is lost", "",
		},
		{
			"… nothing once it is over",
			[]*Op{at(950, 951, 9), at(4500, 4501, 8), at(5000, 5001, 8)},
			killed(), "nothing is lost", "",
		},

		{"a share is charged afterwards", []*Op{
			at(0, 1, 9), at(1100, 1101, 2, marked(10)),
			at(1200, 1201, 7),
		}, killed(), "", ""},
		{
			"… once",
			[]*Op{at(0, 1, 9), at(1100, 1101, 2, marked(10)), at(1200, 1201, 6)},
			killed(),
			"charged once", "",
		},
		{"… nor once more later", []*Op{
			at(0, 1, 9), at(1100, 1101, 2, marked(10)), at(1200, 1201, 7), at(1300, 1301, 5),
		}, killed(), "charged once", ""},
		{"what a share refuses may be charged, if the owner's answer got lost", []*Op{
			at(0, 1, 9), at(990, 1500, 0, denied, marked(0)), at(1600, 1601, 7),
		}, killed(), "", ""},
		{"… and not if it was asked for later", []*Op{
			at(0, 1, 9), at(1100, 1500, 0, denied, marked(0)), at(1600, 1601, 7),
		}, killed(), "charged once", ""},
		{"an unsure owner forgets what it says", []*Op{
			at(0, 1, 5, cost(5)),
			at(1100, 1101, 9, unsure(10)), at(1200, 1201, 8),
		}, killed(), "", ""},
		{"… a share does not", []*Op{
			at(0, 1, 5, cost(5)), at(1100, 1101, 9, marked(10)),
			at(1200, 1201, 8),
		}, killed(), "nothing is lost", ""},
		{"what was charged for an answer that got lost is forgotten", []*Op{
			at(0, 1, 9), at(990, 1500, 3, cost(2), marked(10)), at(995, 996, 6),
			at(1600, 1601, 8),
		}, killed(), "", ""},
		{"… and no more than that", []*Op{
			at(0, 1, 8, cost(2)), at(990, 1500, 3, cost(2), marked(10)), at(995, 996, 5),
			at(1600, 1601, 9),
		}, killed(), "nothing is lost", ""},
		{"an owner that is cut off has charged in vain", []*Op{
			at(0, 1, 9), at(980, 2500, 7, from("n3")), at(990, 995, 7),
			at(9000, 9001, 7, peek),
		}, cut(), "", ""},
		{"… and so has one that is killed", []*Op{
			at(0, 1, 9), at(980, 1500, 7, from("n3")), at(990, 995, 7), at(1600, 1601, 6),
		}, killed(), "", ""},
		{"… which is forgotten", []*Op{
			at(0, 1, 9), at(980, 2500, 7, from("n3")), at(990, 995, 7),
			at(9000, 9001, 6, peek),
		}, cut(), "charged once", ""},
		{"… and charged once", []*Op{
			at(0, 1, 9), at(980, 2500, 7, from("n3")), at(990, 995, 5),
			at(9000, 9001, 7, peek),
		}, cut(), "charged once", ""},
		{"… nothing that was asked for later", []*Op{
			at(0, 1, 9), at(1100, 2500, 7, from("n3")), at(990, 995, 7),
			at(9000, 9001, 7, peek),
		}, cut(), "charged once", ""},
		{"… nor what it has decided on itself", []*Op{
			at(0, 1, 9), at(980, 2500, 7), at(990, 995, 7), at(9000, 9001, 7, peek),
		}, cut(), "charged once", ""},
		{"… nor what is of another owner", []*Op{
			at(0, 1, 9, from("n3")), at(980, 2500, 7, from("n3")), at(990, 995, 7, from("n3")),
			at(9000, 9001, 7, peek),
		}, cut(), "one counter", ""},
		{"Redis cannot say that it is a share", []*Op{
			at(0, 1, 9), at(1100, 1101, 4, redis),
			at(1200, 1201, 7),
		}, killed(), "", ""},
		{"… but there is none without a fault", []*Op{
			at(0, 1, 9), at(1100, 1101, 4, redis),
			at(1200, 1201, 7),
		}, nil, "one counter", ""},
		{"… nor within a second after one, of a key that nobody has asked for before", []*Op{
			at(3900, 3901, 4, redis), at(4050, 4051, 8),
		}, killed(), "", ""},
		{"… nor later", []*Op{
			at(4100, 4101, 4, redis), at(4200, 4201, 8),
		}, killed(), "one counter", ""},

		{
			"… and not if it was asked for when its owner was cut off",
			[]*Op{
				at(0, 1, 8, cost(2)), at(1005, 1006, 7), at(1011, 1500, 3, cost(2), marked(10)),
				at(1600, 1601, 9),
			},
			cut(), "nothing is lost", "",
		},

		{"… but at a node that was cut off, for as long as others would have a mark", []*Op{
			at(7990, 7991, 4, redis, by("n2")), at(8100, 8101, 8),
		}, cutFor(2000), "", ""},
		{"… and no longer", []*Op{
			at(8010, 8011, 4, redis, by("n2")), at(8100, 8101, 8),
		}, cutFor(2000), "one counter", ""},
		{"… and at no other node", []*Op{
			at(7990, 7991, 4, redis, by("n1")), at(8100, 8101, 8),
		}, cutFor(2000), "one counter", ""},

		{
			"an id is charged once",
			[]*Op{at(0, 1, 9, id("a")), at(2, 3, 9, id("a")), at(4, 5, 8)},
			nil, "", "",
		},
		{"… answered only at last", []*Op{
			at(1001, 1100, 0, id("a"), failed),
			at(1300, 1301, 9, id("a")), at(1400, 1401, 8),
		}, killed(), "", ""},
		{
			"an id is charged twice",
			[]*Op{at(0, 1, 9, id("a")), at(2, 3, 9, id("a")), at(4, 5, 7)},
			nil, "charged once", "",
		},
		{
			"two answers to an id",
			[]*Op{at(0, 1, 9, id("a")), at(2, 3, 8, id("a"))},
			nil,
			"charged once", "differ",
		},

		{"a hold is settled", []*Op{
			at(0, 1, 7, hold, cost(3)), at(2, 3, 9, settle(3)),
			at(4, 5, 8),
		}, nil, "", ""},
		{"a hold is released twice", []*Op{
			at(0, 1, 7, hold, cost(3)), at(2, 3, 9, settle(3)),
			at(4, 5, 10, cost(0), peek),
		}, nil, "nothing is lost", ""},
		{"a crash forgets a settlement", []*Op{
			at(0, 1, 7, hold, cost(3)), at(950, 951, 10, settle(3), cost(0)), at(1200, 1201, 6),
		}, killed(), "", ""},
		{"… not an old one", []*Op{
			at(0, 1, 7, hold, cost(3)), at(500, 501, 10, settle(3), cost(0)), at(1200, 1201, 6),
		}, killed(), "charged once", "at least 3"},
		{"a settlement is known again when its node is back", []*Op{
			at(0, 1, 7, hold, cost(3)), at(950, 951, 10, settle(3), cost(0)), at(2500, 2501, 6),
			at(3500, 3501, 8),
		}, stopped(), "", ""},
		{"… not before", []*Op{
			at(0, 1, 7, hold, cost(3)), at(950, 951, 10, settle(3), cost(0)), at(2300, 2301, 6),
			at(2500, 2501, 8),
		}, stopped(), "nothing is lost", "at least 3"},
		{"… and was never forgotten", []*Op{
			at(0, 1, 7, hold, cost(3)), at(950, 951, 10, settle(3), cost(0)), at(2500, 2501, 9),
			at(2510, 2511, 8), at(3500, 3501, 9),
		}, stopped(), "nothing is lost", "at least 2"},
		{"… if it comes back", []*Op{
			at(0, 1, 7, hold, cost(3)), at(950, 951, 10, settle(3), cost(0)), at(1200, 1201, 6),
			at(3500, 3501, 8),
		}, killed(), "nothing is lost", "at least 3"},
		{"of two copies of a sync limit the one that is sure is cut off along", []*Op{
			at(0, 1, 9, of("sync")), at(1400, 1401, 8, of("sync"), by("n2")),
			at(4000, 4001, 8, of("sync")),
		}, oneOfTwo(), "", ""},
		{"… not if there is one", []*Op{
			at(0, 1, 9, of("sync")), at(1400, 1401, 8, of("sync"), by("n2")),
			at(4000, 4001, 8, of("sync")),
		}, cut(), "nothing is lost", "at least 1"},
		{"… nor of before", []*Op{
			at(0, 1, 9, of("sync")), at(950, 951, 8, of("sync")), at(4000, 4001, 8, of("sync")),
		}, oneOfTwo(), "nothing is lost", "at least 1"},
		{
			"an agent that is away is no other node's trouble",
			[]*Op{at(3100, 3101, 9, by("n1"), marked(10))},
			agentStopped(),
			"nothing is marked", "",
		},
		{
			"… and its own",
			[]*Op{at(1100, 1101, 9, by("n2"), marked(10)), at(3100, 3101, 9, by("n2"), marked(10))},
			agentStopped(),
			"", "",
		},
		{"a promised hold is vague", []*Op{
			at(1100, 1101, 2, hold, marked(10)),
			at(1200, 1201, 10, settle(1), promised, cost(0)),
		}, killed(), "", ""},
		{"a refused set charges nothing", []*Op{at(0, 1, 10, refused), at(2, 3, 9)}, nil, "", ""},
		{
			"a refused set says another count",
			[]*Op{at(0, 1, 5, refused), at(2, 3, 9)},
			nil,
			"one counter", "",
		},

		{"too many, without counts", []*Op{
			at(0, 1, 0, of("loose")), at(2, 3, 0, of("loose")),
			at(4, 5, 0, of("loose")),
		}, nil, "0 extra", "3 units"},
		{"a crash excuses one", []*Op{
			at(0, 1, 0, of("loose")), at(950, 951, 0, of("loose")),
			at(1300, 1301, 0, of("loose")),
		}, killed(), "", ""},
		{"within the bound", []*Op{
			at(0, 1, 8, cost(2), of("loose")),
			at(1100, 1101, 0, of("loose"), cost(2), marked(2)),
		}, killed(), "", ""},
		{"beyond the bound", []*Op{
			at(0, 1, 8, cost(2), of("loose")),
			at(1100, 1101, 0, of("loose"), cost(3), marked(2)),
		}, killed(), "covered by bounds", ""},

		{"a rate", []*Op{
			at(0, 1, 0, of("rate"), cost(2)), at(101, 102, 0, of("rate")),
			at(202, 203, 0, of("rate")),
		}, nil, "", ""},
		{"a rate at its very edge", []*Op{
			at(0, 1, 0, of("rate"), cost(2)),
			at(50, 100, 0, of("rate")),
		}, nil, "", ""},
		{
			"beyond a rate",
			[]*Op{at(0, 1, 0, of("rate"), cost(2)), at(50, 99, 0, of("rate"))},
			nil,
			"0 extra", "within 99ms",
		},
		{"beyond a rate in the middle", []*Op{
			at(0, 1, 0, of("rate")), at(5000, 5001, 0, of("rate")), at(5001, 5002, 0, of("rate")),
			at(5003, 5004, 0, of("rate")),
		}, nil, "0 extra", "3 units"},

		{"permits in turn", []*Op{
			at(0, 1, 0, of("permits"), hold),
			at(5, 9, 0, of("permits"), settle(1)), at(6, 8, 0, of("permits"), hold),
		}, nil, "", ""},
		{"permits at once", []*Op{at(0, 1, 0, of("permits"), hold), at(2, 3, 0, of("permits"),
			hold), at(5, 9, 0, of("permits"), settle(1))}, nil, "permits at once", "2 permits"},

		{"marked without a fault", []*Op{at(0, 1, 9, marked(10))}, nil, "nothing is marked", ""},
		{"no answer without a fault", []*Op{at(0, 1, 9, failed)}, nil, "no request fails", ""},
		{
			"no answer while a node leaves",
			[]*Op{at(1500, 1501, 9, failed)},
			left(),
			"no request fails", "",
		},
		{
			"no answer from a dead node",
			[]*Op{at(1100, 1101, 9, failed, by("n2"))},
			killed(), "",
			"",
		},
		{"marked shortly after a crash", []*Op{at(1200, 1201, 9, marked(10))}, killed(), "", ""},
		{
			"marked for long after a crash",
			[]*Op{at(1500, 1501, 9, marked(10))},
			killed(),
			"right again", "1 of 1",
		},
		{
			"one of a thousand", append(many(600, 1300), at(1500, 1501, 9, marked(10))), killed(),
			"",
			"",
		},
		{
			"a breaker that stays open", append(many(200, 1300), many(20, 2500, marked(10))...),
			killed(), "right again", "20 of 220",
		},
		{
			"marked long after it is settled",
			[]*Op{at(9000, 9001, 9, marked(10))},
			killed(),
			"nothing is marked", "",
		},
		{"too late", append(many(20, 1300), at(1300, 2900, 9)), killed(), "right again", ""},

		{
			"an owner that begins anew says so",
			[]*Op{at(0, 1, 5, cost(5)), at(9000, 9001, 9, unsure(10))},
			pair(), "", "",
		},
		{"… until the window ends", []*Op{
			at(0, 1, 5, cost(5)), at(9000, 9001, 9, unsure(10)), at(9010, 9011, 8),
		}, pair(), "", ""},
		{
			"… with the whole limit",
			[]*Op{at(0, 1, 5, cost(5)), at(9000, 9001, 9, unsure(9))},
			pair(), "nothing is marked", "",
		},
		{
			"… and is not a share",
			[]*Op{at(0, 1, 9), at(9000, 9001, 2, marked(10))},
			pair(),
			"nothing is marked", "",
		},
		{
			"… if both have failed",
			[]*Op{at(0, 1, 5, cost(5)), at(9000, 9001, 9, unsure(10))},
			killed(), "nothing is marked", "",
		},
		{
			"… or if there are no copies",
			[]*Op{at(0, 1, 5, cost(5)), at(9000, 9001, 9, unsure(10))},
			alone(), "", "",
		},
		{
			"… and nobody else had a copy",
			[]*Op{at(0, 1, 5, cost(5)), at(9000, 9001, 9, unsure(10))},
			copied(), "nothing is marked", "",
		},
		{"… of that key", []*Op{
			at(0, 1, 9, func(o *Op) { o.Owner = "n4" }), at(9000, 9001, 9, unsure(10)),
		}, pair(), "nothing is marked", ""},
		{"too many, in all, of one that began anew", []*Op{
			at(0, 1, 0, of("loose"), cost(2)), at(9000, 9001, 0, of("loose"), cost(3), unsure(2)),
		}, pair(), "covered by bounds", ""},
		{"a crash forgets a hold", []*Op{
			at(950, 951, 9, hold, number(7)), at(2000, 2001, 0, unheld, settle(1), got(7), cost(0)),
		}, killed(), "", ""},
		{"… not an old one, though", []*Op{
			at(500, 501, 9, hold, number(7)), at(5000, 5001, 0, unheld, settle(1), got(7), cost(0)),
		}, killed(), "no request fails", ""},
		{"… unless its heir fails too", []*Op{
			at(500, 501, 9, hold, number(7)), at(5000, 5001, 0, unheld, settle(1), got(7), cost(0)),
		}, pair(), "", ""},
		{"… and there is no other copy", []*Op{
			at(500, 501, 9, hold, number(7)), at(5000, 5001, 0, unheld, settle(1), got(7), cost(0)),
		}, copied(), "no request fails", ""},
		{"… and none of another owner", []*Op{
			at(950, 951, 9, hold, number(7), func(o *Op) { o.Owner = "n3" }),
			at(5000, 5001, 0, unheld, settle(1), got(7), cost(0)),
		}, killed(), "no request fails", ""},

		{"cut off, before it notices", []*Op{at(1200, 1201, 9, by("n2"))}, cut(), "", ""},
		{"cut off, and marked", []*Op{at(4000, 4001, 9, by("n2"), marked(10))}, cut(), "", ""},
		{
			"cut off, and silent",
			[]*Op{at(4000, 4001, 9, by("n2"))},
			cut(), "the minority is marked",
			"",
		},
		{
			"cut off, while that is undone on a slow machine",
			[]*Op{at(5200, 5201, 9, by("n2"))},
			undone(5100), "", "",
		},
		{
			"cut off, and silent until it is undone",
			[]*Op{at(5200, 5201, 9, by("n2"))},
			undone(5300), "the minority is marked", "",
		},
		{
			"cut off, the majority is marked",
			[]*Op{at(4000, 4001, 9, marked(10))},
			cut(),
			"right again", "",
		},
		{
			"cut off, without an answer",
			[]*Op{at(4000, 4001, 9, by("n2"), failed)},
			cut(),
			"right again", "",
		},
		{"what the minority admits before it notices may be forgotten", []*Op{
			at(0, 1, 9), at(1500, 1501, 8, by("n2")), at(4000, 4001, 8),
		}, cut(), "", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := &History{Limits: testLimits, Ops: x.ops}
			if x.fault != nil {
				h.Faults = append(h.Faults, x.fault)
			}
			v := h.Judge()
			var rules []string
			found := x.rule == ""
			for _, c := range v.Contradictions {
				rules = append(rules, c.Rule)
				found = found || c.Rule == x.rule && strings.Contains(c.Text, x.words)
				if len(c.Ops) == 0 {
					t.Errorf("no requests are named: %v", c)
				}
			}
			if !found || x.rule == "" && len(rules) > 0 || v.Undecided > 0 {
				t.Errorf("%q; want %q %q\n%v", rules, x.rule, x.words, v.Contradictions)
			}
		})
	}
}

// A machine that stalls excuses a late answer, and no count.
func TestStall(t *testing.T) {
	h := &History{
		Limits: testLimits, Stalls: []Stall{{From: 0, To: 200 * ms}},
		Ops: []*Op{at(0, 1, 9), at(250, 251, 3, marked(10)), at(300, 301, 9)},
	}
	v := h.Judge()
	if len(v.Contradictions) != 1 || v.Contradictions[0].Rule != "nothing is lost" ||
		v.Figures[0].Excused != 1 {
		t.Errorf("%v, %+v", v.Contradictions, v.Figures[0])
	}
}

// Redis has no word for a mark: an answer of it from a stall may come from a share.
func TestStallOfRedis(t *testing.T) {
	for end, want := range map[int]int{200: 0, 0: 1} {
		h := &History{
			Limits: testLimits, Stalls: []Stall{{From: 0, To: time.Duration(end)*ms - time.Second}},
			Ops: []*Op{at(0, 1, 9), at(100, 101, 9, redis), at(102, 103, 8)},
		}
		if v := h.Judge(); len(v.Contradictions) != want {
			t.Errorf("%d contradictions of a stall until %d ms, not %d: %v", len(v.Contradictions),
				end, want, v.Contradictions)
		}
	}
}

// A fault that is not over when the judge stops waiting is a contradiction.
func TestNeverSettled(t *testing.T) {
	f := left()
	f.Never = true
	v := (&History{Faults: []*Fault{f}}).Judge()
	if len(v.Contradictions) != 1 || v.Contradictions[0].Rule != "settles" {
		t.Errorf("%v", v.Contradictions)
	}
}

// Of a long history only the requests are shown that contradict each other.
func TestShortest(t *testing.T) {
	var ops []*Op
	for i := range 200 {
		ops = append(ops, at(10*i, 10*i+15, int64(999-i), of("thousand")))
	}
	ops = append(ops, at(5000, 5001, 990, of("thousand"), peek))
	h := &History{Limits: []Limit{{Name: "thousand", Capacity: 1000, Exact: true}}, Ops: ops}
	v := h.Judge()
	if len(v.Contradictions) != 1 {
		t.Fatalf("%d contradictions", len(v.Contradictions))
	}
	c := v.Contradictions[0]
	if !strings.Contains(c.Text, "at least 190 units") || len(c.Ops) != 2 || c.Ops[1] != ops[200] {
		t.Errorf("%v", c)
	}
}

// The lost units of the table are the fewest that explain the answers, within what is excused.
func TestLostIsCounted(t *testing.T) {
	h := &History{Limits: testLimits, Faults: []*Fault{killed()}, Ops: []*Op{
		at(0, 1, 9), at(920, 921, 8), at(940, 941, 7), at(960, 961, 6), at(1200, 1201, 7),
	}}
	v := h.Judge()
	for _, f := range v.Figures {
		if f.Kind == "kill" && (f.Lost != 2 || f.Forgiven != 3) {
			t.Errorf("%+v; want 2 lost of 3", f)
		}
	}
	if len(v.Contradictions) != 0 || len(v.Figures) != 2 ||
		cmp.Compare(v.Figures[1].Kind, "kill") != 0 {
		t.Errorf("%v", v.Contradictions)
	}
}
