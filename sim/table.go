package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter"
	"penstock/limiter/policy"
)

// tableSize is how large the table of each node is, and so in how many steps a node looks through
// it when it copies partitions to others. Small tables keep small worlds fast, and hide what can
// happen between two steps of a look.
type tableSize struct {
	bytes int64         // budget; 0: smallTable
	parts int           // that a look passes through, a power of two; 0: one
	look  time.Duration // that goes by in a step of a look, after which a node gives way; 0: none
}

// smallTable is more than any world has keys for, so that no key is crowded out.
const smallTable = 4 << 20

// productionTable is what penstock serve has by default: 256 MiB, one part per MiB. The time that a
// step takes is drawn, or stated.
var productionTable = tableSize{
	bytes: limiter.DefaultBytes, parts: limiter.DefaultBytes >> 20,
	look: time.Millisecond,
}

// config is what a node's table is made with.
func (t tableSize) config(seed uint64) limiter.TableConfig {
	if t.bytes == 0 {
		t.bytes = smallTable
	}
	return limiter.TableConfig{Bytes: t.bytes, Shards: max(1, t.parts), Seed: seed}
}

// drawTable gives a world tables of production's size. Looks take as long as they do where nodes
// are idle, or where they are busy.
func drawTable(r *rand.Rand) tableSize {
	t := productionTable
	t.look = oneOf(r, 0, 200*time.Microsecond, time.Millisecond, 5*time.Millisecond)
	return t
}

var tableFields = []field[tableSize]{
	{"memory", func(_ *draft, n ast.Node, t *tableSize) (err error) {
		t.bytes, err = memorySize(n, limiter.MinBytes, 64<<30)
		return err
	}},
	{"parts", func(_ *draft, n ast.Node, t *tableSize) error {
		parts, err := between(n, 1, 4096)
		if err == nil && parts&(parts-1) != 0 {
			err = errors.New("must be a power of two")
		}
		t.parts = int(parts)
		return err
	}},
	{"look", func(_ *draft, n ast.Node, t *tableSize) (err error) {
		t.look, err = duration(n, 0, time.Second)
		return err
	}},
}

// table reads the size of the nodes' tables: "production", or fields.
func (d *draft) table(n ast.Node, s *Scenario) error {
	if _, isMap := n.(*ast.MappingNode); !isMap {
		if text, err := policy.Text(n); err != nil || text != "production" {
			return errors.New("must be production, or a mapping of " + fieldNames(tableFields))
		}
		s.plan.table = productionTable
		return nil
	}
	t := &s.plan.table
	fields(d, n, "a table", tableFields, t)
	if bytes := max(t.bytes, smallTable); int64(t.parts) > bytes>>15 {
		return fmt.Errorf("has %d parts of less than 32KiB: give it more memory", t.parts)
	}
	return nil
}

// memorySize reads an amount of memory, as in 256MiB.
func memorySize(n ast.Node, least, most int64) (int64, error) {
	text, err := policy.Text(n)
	if err != nil {
		return 0, err
	}
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		number, ok := strings.CutSuffix(text, unit.name)
		count, err := strconv.ParseUint(number, 10, 32)
		if !ok || err != nil {
			continue
		}
		if bytes := int64(count) * unit.bytes; bytes >= least && bytes <= most {
			return bytes, nil
		}
		return 0, fmt.Errorf("is %s; %dKiB to %dGiB are accepted", text, least>>10, most>>30)
	}
	return 0, fmt.Errorf("%.40q is no amount of memory; write 256MiB, 64KiB or 2GiB", text)
}

// write writes the size of the tables, unless they are small.
func (t tableSize) write(b *strings.Builder) {
	if t == (tableSize{}) {
		return
	}
	fmt.Fprintf(b, "table: {memory: %dKiB, parts: %d, look: %v}\n", t.config(0).Bytes>>10,
		max(1, t.parts), t.look)
}
