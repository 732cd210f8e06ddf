package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// network is where the nodes talk to each other: a network namespace for each, on one bridge, or
// addresses of loopback where namespaces may not be made. Clients come by Unix sockets, so no cut
// between nodes parts a client from its node.
type network struct {
	id       string
	loopback bool
	why      string // why it is loopback
	made     []string
}

func newNetwork(loopback bool) *network {
	w := &network{id: fmt.Sprintf("psh%d", os.Getpid()), loopback: loopback, why: "-loopback"}
	if loopback {
		return w
	}
	if err := w.makeSwitch(); err != nil {
		w.close()
		w.loopback, w.why = true, err.Error()
	}
	return w
}

func (w *network) makeSwitch() error {
	if err := w.space("switch"); err != nil {
		return err
	}
	if err := w.ip("switch", "link add name bridge type bridge"); err != nil {
		return err
	}
	if err := w.ip("switch", "link set bridge up"); err != nil {
		return err
	}
	return w.in("switch", "iptables", "-L", "-n")
}

// space makes a namespace.
func (w *network) space(name string) error {
	if err := command("ip", "netns", "add", w.id+"-"+name); err != nil {
		return err
	}
	w.made = append(w.made, name)
	return nil
}

func (w *network) ip(space, args string) error {
	return command("ip", append([]string{"-n", w.id + "-" + space}, strings.Fields(args)...)...)
}

func (w *network) in(space string, args ...string) error {
	return command("ip", append([]string{"netns", "exec", w.id + "-" + space}, args...)...)
}

// address is that of the i-th node.
func (w *network) address(i int) string {
	if w.loopback {
		return fmt.Sprintf("127.%d.%d.%d", 100+os.Getpid()/250%100, os.Getpid()%250, i+1)
	}
	return fmt.Sprintf("10.96.0.%d", i+1)
}

// plug makes the place of the i-th node.
func (w *network) plug(i int, name string) error {
	if w.loopback {
		return nil
	}
	if err := w.space(name); err != nil {
		return err
	}
	for _, c := range [][2]string{
		{"switch", fmt.Sprintf("link add %s type veth peer name eth0 netns %s-%s", name, w.id,
			name)},
		{"switch", fmt.Sprintf("link set %s master bridge up", name)},
		{name, fmt.Sprintf("addr add %s/24 dev eth0", w.address(i))},
		{name, "link set eth0 up"},
		{name, "link set lo up"},
	} {
		if err := w.ip(c[0], c[1]); err != nil {
			return err
		}
	}
	return nil
}

// command runs a program in the place of the node.
func (w *network) command(name string, args ...string) *exec.Cmd {
	if w.loopback {
		return exec.Command(args[0], args[1:]...)
	}
	return exec.Command("ip", append([]string{"netns", "exec", w.id + "-" + name}, args...)...)
}

// cut: from now on the node hears nothing from those addresses.
func (w *network) cut(name string, from []string) error {
	return w.in(name, "iptables", "-A", "INPUT", "-s", strings.Join(from, ","), "-j", "DROP")
}

// lose: the node hears only some of the packets.
func (w *network) lose(name string, probability float64) error {
	return w.in(
		name,
		"iptables",
		"-A",
		"INPUT",
		"-i",
		"eth0",
		"-m",
		"statistic",
		"--mode",
		"random",
		"--probability",
		fmt.Sprint(probability),
		"-j",
		"DROP",
	)
}

// heal undoes cuts and loss of a node.
func (w *network) heal(name string) error { return w.in(name, "iptables", "-F", "INPUT") }

func (w *network) delay(name, delay string) error {
	return w.in(name, "tc", "qdisc", "replace", "dev", "eth0", "root", "netem", "delay", delay)
}

func (w *network) undelay(name string) error {
	return w.in(name, "tc", "qdisc", "del", "dev", "eth0", "root")
}

// delays says whether the kernel can delay packets.
func (w *network) delays() bool {
	if w.loopback || w.ip("switch", "link add probe type dummy") != nil {
		return false
	}
	defer w.ip("switch", "link del probe")
	return w.in(
		"switch",
		"tc",
		"qdisc",
		"add",
		"dev",
		"probe",
		"root",
		"netem",
		"delay",
		"1ms",
	) == nil
}

// loses says whether the kernel can lose packets at random.
func (w *network) loses() bool {
	if w.loopback || w.lose("switch", 0.5) != nil {
		return false
	}
	return w.heal("switch") == nil
}

func (w *network) close() {
	for _, name := range w.made {
		_ = command("ip", "netns", "del", w.id+"-"+name)
	}
	w.made = nil
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf(
			"%s %s: %w: %s",
			name,
			strings.Join(args, " "),
			err,
			strings.TrimSpace(string(out)),
		)
	}
	return nil
}
