package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	envoyLines = `[2016-04-15T20:17:00.310Z] "POST /a?b HTTP/2" 204 RL 154 7 226 100 ` +
		`"1.1.1.1, 10.0.35.28" "q\"x" "cc21" "locations" "10.0.2.1:80"
` + bareEnvoy("2016-04-15T20:17:00.410Z", "0") + "\n"
	monitorLines = `OK
1460751420.310000 [0 127.0.0.1:60866] "CL.THROTTLE" "login:al\x69ce:\"x\"" "15" "30" "60"
1460751420.410000 [3 [::1]:60866] "cl.throttle" "a" "0" "1" "1" "7"
1460751420.510000 [0 lua] "INCR" "x:1:2"
1460751420.610000 [0 unix:/tmp/s] "INCRBY" "y" "5"
1460751420.710000 [0 127.0.0.1:60866] "EXPIRE" "y" "60"
`
)

// bareEnvoy is a line of Envoy's log in which little is known.
func bareEnvoy(at, status string) string {
	return "[" + at + `] "GET / HTTP/1.1" ` + status + ` - 0 0 1 - "-" "-" "-" "-" "-"`
}

// Lines of logs that other limiters leave are requests with these fields; what is not a request in
// them is passed over.
func TestLogsOfOthersAreRead(t *testing.T) {
	at := time.Date(2016, 4, 15, 20, 17, 0, 310e6, time.UTC).UnixNano()
	for _, c := range []struct {
		text, key string
		format    logFormat
		want      []logged
	}{
		{
			envoyLines,
			"{ip}|{forwarded}|{request}|{method}|{path}|{query}|{protocol}|{status}|{flags}|" +
				"{received}|{bytes}|{duration}|{agent}|{id}|{host}|{upstream}", &envoyLog{},
			[]logged{
				{
					at, "10.0.35.28|1.1.1.1, 10.0.35.28|POST /a?b HTTP/2|POST|/a|b|HTTP/2|204|RL|" +
						`154|7|226|q"x|cc21|locations|10.0.2.1:80`, 1,
				},
				{at + 100e6, "-|-|GET / HTTP/1.1|GET|/||HTTP/1.1|0|-|0|0|1|-|-|-|-", 1},
			},
		},
		{
			monitorLines, "{db}|{ip}|{key}|{1}|{burst}|{count}|{period}|{cost}",
			&monitorLog{cell: true},
			[]logged{
				{at, `0|127.0.0.1|login:alice:"x"|login|15|30|60|1`, 1},
				{at + 100e6, "3|::1|a|a|0|1|1|7", 1},
			},
		},
		{
			monitorLines, "{db}|{ip}|{key}|{1}|{cost}", &monitorLog{},
			[]logged{{at + 200e6, "0|lua|x:1:2|x|1", 1}, {at + 300e6, "0|unix|y|y|5", 1}},
		},
	} {
		all, skipped, err := reads(t, c.text, c.format, c.key, false)
		if err != nil || skipped != 0 || !slices.EqualFunc(all, c.want, func(a, b logged) bool {
			return a.key == b.key && (a.at-b.at)/1e6 == 0
		}) {
			t.Errorf("got\n%v, %d, %v\nwant\n%v", all, skipped, err, c.want)
		}
	}
}

func TestBadLinesOfOthersAreSaid(t *testing.T) {
	for line, want := range map[string]string{
		`[2016-04-15T20:17:00Z] "GET /" 200 - 1`:        "must be as Envoy's default is",
		bareEnvoy("noon", "200"):                        `its time, "noon", must be like`,
		bareEnvoy("2016-04-15T20:17:00Z", "OK"):         `its status, "OK", is not a number`,
		bareEnvoy("2016-04-15T20:17:00Z", "200") + " x": "must be as Envoy's default is",
	} {
		badSecondLine(t, envoyLines[:strings.Index(envoyLines, "\n")], line, &envoyLog{}, want)
	}
	for line, want := range map[string]string{
		`hello`: "must be as MONITOR",
		`noon [0 1:1] "CL.THROTTLE" "a" "1" "1" "1"`:              `its time, "noon", must`,
		`1460751420 [0] "CL.THROTTLE" "a"`:                        "must be as MONITOR",
		`1460751420 [0 1:1] CL.THROTTLE`:                          "must be as MONITOR",
		`1460751420 [0 1:1] "CL.THROTTLE" "a" "1"`:                "CL.THROTTLE has 2",
		`1460751420 [0 1:1] "CL.THROTTLE" "a" "1" "0" "1"`:        `"0" must be a whole`,
		`1460751420 [0 1:1] "CL.THROTTLE" "\q" "1" "1" "1"`:       `"\\q" is not a word`,
		`1460751420 [0 1:1] "CL.THROTTLE" "a" "1" "1" "31622401"`: "1 to 31622400",
	} {
		badSecondLine(t, strings.Split(monitorLines, "\n")[1], line, &monitorLog{cell: true}, want)
	}
}

func badSecondLine(t *testing.T, fine, line string, format logFormat, want string) {
	t.Helper()
	_, _, err := reads(t, fine+"\n"+line+"\n"+fine, format, "{ip}", false)
	var at *LogError
	if !errors.As(err, &at) || at.Line != 2 || !strings.Contains(err.Error(), want) {
		t.Errorf("%s\ngot:  %v\nwant: %s", line, err, want)
	}
}

// Whatever stands in a line, it is a request with all its fields, or an error.
func FuzzLogsOfOthers(f *testing.F) {
	for line := range strings.Lines(envoyLines + monitorLines) {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, l := range []Log{{Format: "envoy"}, {Format: "redis-cell"}, {Format: "redis-incr"}} {
			known, format, err := l.format()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := format.read(line); err != nil {
				continue
			}
			for _, name := range known {
				if v, err := format.field(name); err != nil &&
					!strings.Contains("123456789", name) ||
					len(v) > len(line) {
					t.Errorf("%s of %q: %q, %v", name, line, v, err)
				}
			}
		}
	})
}
