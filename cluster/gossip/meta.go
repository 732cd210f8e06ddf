package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/memberlist"

	"penstock/cluster"
	"penstock/ring"
)

// meta is what the others must know about a node besides its id. It travels with every message
// about the node:
//
//	version 1 byte | state 1 | role 1 | boot 8 | started 8 | ring algorithm 8 |
//	peer, gRPC, HTTP address | features | number of earlier boots that it replaces, each 8 |
//	hash of limits 8 | version of the program; what is not said ends the record
//
// Integers are little endian, an address is its length as a uvarint and its bytes, and so is the
// version of the program; features are a uvarint. The first release ends before them: a node that
// does not say has none, and of limits 0 stands for that. The version is left out where the
// addresses need its room. A later release may append more, so what follows is ignored; another
// version of the record is another protocol and is refused.
type meta struct {
	state     cluster.State
	role      cluster.Role
	boot      uint64
	started   uint64 // nanoseconds since the Unix epoch
	algorithm uint64 // hash of ring.Algorithm: nodes with another one would disagree on most owners
	peer      string
	grpc      string
	http      string
	features  cluster.Features
	replaced  [mostReplaced]uint64 // earlier boots that this one has found gone; 0: none
	limits    uint64               // hash of what its files say
	version   string               // of its program; empty if it does not say
}

const (
	metaVersion = 1
	metaFixed   = 3 + 3*8 // bytes before the addresses
	maxVersion  = 64      // bytes of the version of a program
)

var errMetaShort = errors.New("its record ends too early")

var algorithm = xxhash.Sum64String(ring.Algorithm())

// encode fails if the addresses are too long for the library, which would panic.
func (m meta) encode() ([]byte, error) {
	b := []byte{metaVersion, byte(m.state), byte(m.role)}
	b = binary.LittleEndian.AppendUint64(b, m.boot)
	b = binary.LittleEndian.AppendUint64(b, m.started)
	b = binary.LittleEndian.AppendUint64(b, m.algorithm)
	for _, s := range []string{m.peer, m.grpc, m.http} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendUvarint(b, uint64(m.features))
	named := slices.DeleteFunc(
		slices.Clone(m.replaced[:]),
		func(boot uint64) bool { return boot == 0 },
	)
	if len(named) > 0 || m.limits != 0 || m.version != "" {
		b = binary.AppendUvarint(b, uint64(len(named)))
	}
	for _, boot := range named {
		b = binary.LittleEndian.AppendUint64(b, boot)
	}
	if m.limits != 0 || m.version != "" {
		b = binary.LittleEndian.AppendUint64(b, m.limits)
	}
	if n := len(m.version); n > 0 && len(b)+1+n <= memberlist.MetaMaxSize {
		b = append(append(b, byte(n)), m.version...)
	}
	if len(b) > memberlist.MetaMaxSize {
		return nil, fmt.Errorf(
			"the peer, gRPC and HTTP addresses are %d bytes too long together for gossip to carry",
			len(b)-memberlist.MetaMaxSize,
		)
	}
	return b, nil
}

func decodeMeta(b []byte) (meta, error) {
	if len(b) == 0 {
		return meta{}, errMetaShort
	}
	if b[0] != metaVersion {
		return meta{}, fmt.Errorf(
			"its record has version %d, this node understands %d",
			b[0],
			metaVersion,
		)
	}
	if len(b) < metaFixed {
		return meta{}, errMetaShort
	}
	m := meta{
		state:     cluster.State(b[1]),
		role:      cluster.Role(b[2]),
		boot:      binary.LittleEndian.Uint64(b[3:]),
		started:   binary.LittleEndian.Uint64(b[11:]),
		algorithm: binary.LittleEndian.Uint64(b[19:]),
	}
	if m.state > cluster.StateLeaving || m.role > cluster.RoleAgent {
		return meta{}, fmt.Errorf(
			"its record has the state %d and the role %d, which this node does not know",
			b[1],
			b[2],
		)
	}
	b = b[metaFixed:]
	for _, s := range []*string{&m.peer, &m.grpc, &m.http} {
		n, width := binary.Uvarint(b)
		if width <= 0 || n > uint64(len(b)-width) {
			return meta{}, errMetaShort
		}
		*s, b = string(b[width:width+int(n)]), b[width+int(n):]
	}
	if features, width := binary.Uvarint(b); width > 0 {
		m.features = cluster.Features(features)
		return m, m.readRest(b[width:])
	}
	return m, nil
}

func (m *meta) readRest(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	n, width := binary.Uvarint(b)
	if width <= 0 || n > memberlist.MetaMaxSize || uint64(len(b)-width) < 8*n {
		return errMetaShort
	}
	named := m.replaced[:0]
	for i := range n {
		boot := binary.LittleEndian.Uint64(b[width+int(8*i):])
		if boot != 0 && len(named) < mostReplaced { // 0 stands for no boot
			named = append(named, boot)
		}
	}
	if b = b[width+int(8*n):]; len(b) >= 8 {
		m.limits = binary.LittleEndian.Uint64(b)
		m.version = readVersion(b[8:])
	}
	return nil
}

// readVersion is empty for bytes that are no version: they are those of a later release.
func readVersion(b []byte) string {
	if len(b) == 0 || b[0] > maxVersion || int(b[0]) >= len(b) {
		return ""
	}
	if v := string(b[1 : 1+b[0]]); v == printable(v) {
		return v
	}
	return ""
}

// printable is the version of a program as a record carries it: at most maxVersion characters that
// a terminal and a log can show.
func printable(version string) string {
	version = strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' {
			return -1
		}
		return c
	}, version)
	return version[:min(len(version), maxVersion)]
}

func (m meta) member(id string) cluster.Member {
	return cluster.Member{
		ID: id, Boot: m.boot, PeerAddr: m.peer, GRPCAddr: m.grpc, HTTPAddr: m.http, Role: m.role,
		State: m.state, Features: m.features,
		Limits: m.limits,
	}
}

// nodeName is the name by which the library knows one boot of a node.
func nodeName(id string, boot uint64) string { return fmt.Sprintf("%s/%016x", id, boot) }

func parseNodeName(name string) (id string, boot uint64, err error) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", 0, fmt.Errorf("its name %.300q is not id/boot", name)
	}
	boot, err = strconv.ParseUint(name[i+1:], 16, 64)
	if err != nil || nodeName(name[:i], boot) != name {
		return "", 0, fmt.Errorf("its name %.300q is not id/boot", name)
	}
	return name[:i], boot, validateID(name[:i])
}
