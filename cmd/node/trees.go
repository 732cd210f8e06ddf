package main

import (
	"fmt"

	"penstock/cluster"
	"penstock/limiter"
)

// keysAbove are the limits above l, with the keys under which a check of key charges them, and what
// these admit at once. Without a key they have none.
func keysAbove(
	l *limiter.Limit, above []*limiter.Limit, key string,
) (list []matchedItem, err error) {
	at := key
	for _, a := range above {
		if key == "" {
			list = append(list, matchedItem{Limit: a.Name, AtOnce: a.Capacity()})
			continue
		}
		has := false
		if at, has = limiter.ParentKey(at); !has {
			return nil, fmt.Errorf("key %q: is too short for limit %q: the key of its parent %q "+
				"is what stands before the last slash", key, l.Name, a.Name)
		}
		list = append(list, matchedItem{a.Name, at, a.For(at).Capacity()})
	}
	return list, nil
}

// decideTree decides under a limit with parents, as a node does that is alone.
func decideTree(
	l *limiter.Limit, above []*limiter.Limit, memory int64,
) (decideLogged, error) {
	clock := &logClock{}
	n, err := loneNode(clock, memory)
	if err != nil {
		return nil, err
	}
	limits := cluster.Limits{l.Name: l}
	for _, a := range above {
		limits[a.Name] = a
	}
	n.SetLimits(limits)
	var out [1]cluster.Decision
	return func(at limiter.Instant, key string, cost int64) (ruling, error) {
		clock.now = at
		err := n.Check(&cluster.Request{
			Items: []cluster.Item{{Limit: l.Name, Key: key, Cost: cost}},
		}, out[:])
		d := &out[0]
		if err != nil || d.Allowed && !d.Shadow && !d.Over {
			return ruling{}, err
		}
		return ruling{refuses: d.Rule.Name}, nil
	}, nil
}

// loneNode is a node that is alone, at the time of clock.
func loneNode(clock *logClock, memory int64) (*cluster.Node, error) {
	const name = "replay"
	n, err := cluster.New(cluster.Config{
		ID: name, Boot: 1, Clock: clock, Network: clock,
		Table: limiter.NewTable(limiter.TableConfig{Bytes: memory}),
	})
	if err != nil {
		return nil, err
	}
	view, err := cluster.NewView(name, []cluster.Member{{
		ID: name, Boot: 1,
		State: cluster.StateActive, Features: cluster.FeatureHolds,
	}})
	if err == nil {
		n.SetView(view)
	}
	return n, err
}

// fallsUnder is a level that items of a request fall under, by their places.
type fallsUnder struct {
	limit, key string
	items      []int
}

// levelsOf are the levels that the items of a request fall under, each once: the limits that rules
// name, and those above them.
func levelsOf(limits cluster.Limits, items []cluster.Item) (list []fallsUnder) {
	seen := map[[2]string]int{}
	add := func(limit, key string, item int) {
		k, known := seen[[2]string{limit, key}]
		if !known {
			k = len(list)
			seen[[2]string{limit, key}] = k
			list = append(list, fallsUnder{limit: limit, key: key})
		}
		list[k].items = append(list[k].items, item)
	}
	named := func(name string) *limiter.Limit { return limits[name] }
	for i := range items {
		it := &items[i]
		add(it.Limit, it.Key, i)
		above, err := limiter.Ancestors(limits[it.Limit], named)
		key := it.Key
		for k := 0; err == nil && k < len(above); k++ {
			key, _ = limiter.ParentKey(key)
			add(above[k].Name, key, i)
		}
	}
	return list
}
