// Command browser looks at a page with a Chromium without a window: it waits until a condition
// holds, takes pictures, and prints what scripts find. It talks over a pipe (the DevTools
// protocol), so it needs nothing but Chromium. Usage:
//
//	browser [-width 900] [-dark] URL ACTION…
//
// An action is wait=SCRIPT (until it is true), eval=SCRIPT (prints what it is), key=NAME (presses a
// key), picture=FILE, width=N, or sleep=DURATION. It ends with 1 if a condition does not hold
// within 20 s, or if the page has written an error to its console.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// patience bounds how long a condition is waited for.
const patience = 20 * time.Second

func main() {
	width := flag.Int("width", 900, "of the window, in CSS pixels")
	dark := flag.Bool("dark", false, "prefer dark colours")
	flag.Parse()
	if flag.NArg() < 1 {
		fmt.Fprintln(os.Stderr, "browser: no URL is given")
		os.Exit(2)
	}
	if err := look(flag.Arg(0), *width, *dark, flag.Args()[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
}

// tab is a page that is open.
type tab struct {
	out     io.Writer
	in      *bufio.Reader
	session string
	last    int
	dark    bool
	width   int
	faults  []string // what the page has complained about
}

// message is one of the DevTools protocol.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func look(url string, width int, dark bool, actions []string) error {
	profile, err := os.MkdirTemp("", "browser")
	if err != nil {
		return err
	}
	defer os.RemoveAll(profile)
	toChild, out, err := os.Pipe()
	if err != nil {
		return err
	}
	in, fromChild, err := os.Pipe()
	if err != nil {
		return err
	}
	c := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu",
		"--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+profile)
	c.ExtraFiles = []*os.File{toChild, fromChild}
	if err := c.Start(); err != nil {
		return err
	}
	defer func() {
		c.Process.Kill()
		c.Wait()
	}()
	toChild.Close()
	fromChild.Close()
	t := &tab{out: out, in: bufio.NewReader(in), dark: dark, width: width}
	if err := t.open(url); err != nil {
		return err
	}
	for _, a := range actions {
		if err := t.act(a); err != nil {
			return fmt.Errorf("%.200s: %w", a, err)
		}
	}
	if len(t.faults) > 0 {
		return fmt.Errorf("the page complains: %s", strings.Join(t.faults, "; "))
	}
	return nil
}

// call asks the browser, and reads what it says until the answer.
func (t *tab) call(method string, params, result any) error {
	t.last++
	text, err := json.Marshal(message{
		ID: t.last, Session: t.session, Method: method, Params: params,
	})
	if err != nil {
		return err
	}
	if _, err := t.out.Write(append(text, 0)); err != nil {
		return err
	}
	for {
		text, err := t.in.ReadBytes(0)
		if err != nil {
			return err
		}
		var m struct {
			message
			Params json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			return err
		}
		t.hear(m.Method, m.Params)
		if m.ID != t.last {
			continue
		}
		if m.Error != nil {
			return fmt.Errorf("%s: %s", method, m.Error)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(m.Result, result)
	}
}

// hear notes complaints of the page.
func (t *tab) hear(method string, params json.RawMessage) {
	switch method {
	case "Runtime.exceptionThrown":
		t.faults = append(t.faults, fmt.Sprintf("%.600s", params))
	case "Log.entryAdded":
		// An answer with an error status is logged too, and the page shows it.
		if text := string(params); strings.Contains(text, `"level":"error"`) &&
			!strings.Contains(text, `"source":"network"`) {
			t.faults = append(t.faults, fmt.Sprintf("%.600s", text))
		}
	}
}

type object map[string]any

func (t *tab) open(url string) error {
	var target struct {
		ID string `json:"targetId"`
	}
	if err := t.call("Target.createTarget", object{"url": "about:blank"}, &target); err != nil {
		return err
	}
	var session struct {
		ID string `json:"sessionId"`
	}
	err := t.call("Target.attachToTarget", object{"targetId": target.ID, "flatten": true}, &session)
	if err != nil {
		return err
	}
	t.session = session.ID
	scheme := "light"
	if t.dark {
		scheme = "dark"
	}
	feature := []object{{"name": "prefers-color-scheme", "value": scheme}}
	return errors.Join(
		t.call("Runtime.enable", object{}, nil), t.call("Log.enable", object{}, nil),
		t.call("Emulation.setEmulatedMedia", object{"features": feature}, nil),
		t.resize(900), t.call("Page.navigate", object{"url": url}, nil),
	)
}

func (t *tab) resize(height int) error {
	return t.call("Emulation.setDeviceMetricsOverride", object{
		"width": t.width, "height": height, "deviceScaleFactor": 1, "mobile": false,
	}, nil)
}

// eval is what a script is, as JSON.
func (t *tab) eval(script string) (json.RawMessage, error) {
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	err := t.call("Runtime.evaluate", object{
		"expression": script, "returnByValue": true, "awaitPromise": true,
	}, &answer)
	if err == nil && answer.Exception != nil {
		err = fmt.Errorf("%.400s", answer.Exception)
	}
	return answer.Result.Value, err
}

func (t *tab) act(a string) error {
	what, value, _ := strings.Cut(a, "=")
	switch what {
	case "wait":
		return t.wait(value)
	case "eval":
		v, err := t.eval(value)
		var text string
		if json.Unmarshal(v, &text) != nil {
			text = string(v)
		}
		fmt.Println(text)
		return err
	case "key":
		k := object{"type": "keyDown", "key": value, "code": value}
		if codes := map[string]int{"Tab": 9, "Enter": 13, "ArrowLeft": 37}; codes[value] != 0 {
			k["windowsVirtualKeyCode"] = codes[value]
		}
		if value == "Enter" {
			k["text"] = "\r"
		}
		err := t.call("Input.dispatchKeyEvent", k, nil)
		k["type"] = "keyUp"
		return errors.Join(err, t.call("Input.dispatchKeyEvent", k, nil))
	case "picture":
		return t.picture(value)
	case "width":
		n, err := strconv.Atoi(value)
		t.width = n
		return errors.Join(err, t.resize(900))
	case "sleep":
		d, err := time.ParseDuration(value)
		time.Sleep(d)
		return err
	}
	return errors.New("is not an action")
}

func (t *tab) wait(script string) error {
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		v, err := t.eval(script)
		if err == nil && string(v) == "true" {
			return nil
		}
		if time.Now().After(end) {
			seen, _ := t.eval("document.body.innerText")
			return fmt.Errorf("is not so after %v: %.3000s %v", patience, seen, err)
		}
	}
}

// picture keeps the whole page as PNG.
func (t *tab) picture(file string) error {
	height, err := t.eval("document.documentElement.scrollHeight")
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(height))
	if err != nil {
		return err
	}
	var shot struct {
		Data string `json:"data"`
	}
	if err := t.resize(max(900, n)); err != nil {
		return err
	}
	if err := t.call("Page.captureScreenshot", object{"format": "png"}, &shot); err != nil {
		return err
	}
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		return err
	}
	return os.WriteFile(file, png, 0o644)
}
