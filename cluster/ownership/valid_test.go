package ownership

import (
	"fmt"
	"strings"
	"testing"
)

// Promise: a configuration from elsewhere is taken if all that reads one may rely on it, and else
// said to be wrong where it is.
func TestConfigurationsAreChecked(t *testing.T) {
	long := strings.Repeat("x", MaxName)
	good := func() *Configuration {
		return &Configuration{
			Epoch:    Epoch{Lineage(strings.Repeat("l", MaxLineage)), 7},
			Previous: Epoch{Founded(1), 6},
			Members: []Member{
				{"a", 3, RoleOwner, ""}, {"b", 1, RoleLeaving, long}, {long, 2, 0, "z"},
			},
			Voters:   []Boot{1, 3},
			Rivals:   []Member{{"r", 9, RoleOwner, ""}},
			Failover: MinFailover, Copies: TwoCopies,
		}
	}
	many := func(n int) (list []Member) {
		for i := range n {
			list = append(list, Member{ID: fmt.Sprintf("%04d", i), Boot: Boot(i + 1)})
		}
		return list
	}
	for name, row := range map[string]struct {
		does func(c *Configuration)
		want string // empty: it is good
	}{
		"good":             {func(*Configuration) {}, ""},
		"root":             {func(c *Configuration) { c.Previous = Epoch{} }, ""},
		"longest failover": {func(c *Configuration) { c.Failover = MaxFailover }, ""},
		"usual failover":   {func(c *Configuration) { c.Failover = 0 }, ""},
		"seven voters": {
			func(c *Configuration) { c.Members, c.Voters = many(9), []Boot{1, 2, 3, 4, 5, 6, 7} },
			"",
		},
		"most members": {func(c *Configuration) { c.Members = many(MaxMembers) }, ""},
		"most rivals":  {func(c *Configuration) { c.Rivals = many(MaxMembers) }, ""},
		"no epoch": {
			func(c *Configuration) { c.Epoch = Epoch{} },
			"its epoch has the number 0",
		},
		"epoch of nobody": {
			func(c *Configuration) { c.Epoch.Lineage = "" },
			"epoch 7 has a lineage of 0 bytes",
		},
		"epoch 0 of somebody": {
			func(c *Configuration) { c.Epoch.Number = 0 },
			"epoch 0 has a lineage of",
		},
		"half a boot": {
			func(c *Configuration) { c.Epoch.Lineage = "abc" },
			"epoch 7 has a lineage of 3 bytes",
		},
		"long lineage": {
			func(c *Configuration) { c.Epoch.Lineage += "12345678" },
			"epoch 7 has a lineage of 32776",
		},
		"broken previous": {
			func(c *Configuration) { c.Previous.Lineage = "abc" },
			"epoch 6 has a lineage of 3",
		},
		"no members": {func(c *Configuration) { c.Members = nil }, "it has 0 members"},
		"too many members": {
			func(c *Configuration) { c.Members = many(MaxMembers + 1) },
			"it has 2049 members",
		},
		"too many rivals": {
			func(c *Configuration) { c.Rivals = many(MaxMembers + 1) },
			"it has 2049 rivals",
		},
		"no voters": {func(c *Configuration) { c.Voters = nil }, "it has 0 voters"},
		"too many voters": {
			func(c *Configuration) {
				c.Members, c.Voters = many(9), []Boot{1, 2, 3, 4, 5, 6, 7, 8}
			},
			"it has 8 voters",
		},
		"strange voter": {
			func(c *Configuration) { c.Voters = []Boot{1, 4} },
			"voters[1] is 4",
		},
		"voters unsorted": {
			func(c *Configuration) { c.Voters = []Boot{3, 1} },
			"voters[1] is 1",
		},
		"a voter twice": {
			func(c *Configuration) { c.Voters = []Boot{3, 3} },
			"voters[1] is 3",
		},
		"short failover": {
			func(c *Configuration) { c.Failover = MinFailover - 1 },
			"it has a failover of",
		},
		"long failover": {
			func(c *Configuration) { c.Failover = MaxFailover + 1 },
			"it has a failover of",
		},
		"more copies": {
			func(c *Configuration) { c.Copies = TwoCopies + 1 },
			"it has a code of copies of 3",
		},
		"members unsorted": {
			func(c *Configuration) { c.Members[0].ID = "c" },
			`members[1] is "b" after "c"`,
		},
		"a name twice": {
			func(c *Configuration) { c.Members[0].ID = "b" },
			`members[1] is "b" after "b"`,
		},
		"a boot twice": {
			func(c *Configuration) { c.Members[0].Boot = 2; c.Voters = []Boot{1} },
			"two members have the boot 2",
		},
		"boot 0": {
			func(c *Configuration) { c.Members[2].Boot = 0 },
			"members[2] has the boot 0",
		},
		"no name": {
			func(c *Configuration) { c.Members[0].ID = "" },
			"members[0] has an id of 0 bytes",
		},
		"long name": {
			func(c *Configuration) { c.Members[2].ID += "x" },
			"members[2] has an id of 256 bytes",
		},
		"long zone": {
			func(c *Configuration) { c.Members[1].Zone += "x" },
			"members[1] has a zone of 256 bytes",
		},
		"role": {
			func(c *Configuration) { c.Members[1].Role = 2 },
			"members[1] has the role 2",
		},
		"rival of boot 0": {
			func(c *Configuration) { c.Rivals[0].Boot = 0 },
			"rivals[0] has the boot 0",
		},
		"rival with no name": {
			func(c *Configuration) { c.Rivals[0].ID = "" },
			"rivals[0] has an id of 0",
		},
	} {
		c := good()
		row.does(c)
		err := c.Check()
		if row.want == "" && err != nil || row.want != "" &&
			(err == nil || !strings.HasPrefix(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}
