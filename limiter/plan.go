package limiter

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A plan is what a key's owner has bought: free, pro. An Override with a Plan makes the exception
// from the limit for requests that name the plan, whatever their key. The counter stays that of the
// key: a change of plan keeps what the key has consumed, as a change of override does.

// MaxPlan bounds the name of a plan, in bytes.
const MaxPlan = 64

// planWord begins the Override of a limit that is for a plan.
const planWord = "plan "

// Plan is the name of the plan that the limit is for; "" if it is for keys.
func (s *Spec) Plan() string {
	if !s.Planned {
		return ""
	}
	return strings.TrimPrefix(s.Override, planWord)
}

// Under is For for a request that names a plan: of the overrides that are for the plan or the key,
// the first one counts. The empty plan is For. A plan that l does not have is a *SpecError.
func (l *Limit) Under(plan, key string) (*Limit, error) {
	if plan == "" {
		return l.For(key), nil
	}
	if under := overridden(l, plan, key); under != nil {
		return under, nil
	}
	names := PlansOf(l)
	if len(names) == 0 {
		return nil, &SpecError{"plan", fmt.Sprintf("is %.70q, and limit %q has no plans; leave it "+
			"out", plan, l.Name)}
	}
	return nil, &SpecError{"plan", fmt.Sprintf("%.70q is none of limit %q; there is: %s", plan,
		l.Name, strings.Join(names, ", "))}
}

// PlansOf are the names of the plans of l, in the order of its overrides.
func PlansOf(l *Limit) (names []string) {
	for i := range l.overrides {
		if plan := l.overrides[i].Plan; plan != "" {
			names = append(names, plan)
		}
	}
	return names
}

// checkPlan accepts or refuses a name.
func checkPlan(name string) *SpecError {
	if len(name) > MaxPlan || !utf8.ValidString(name) || strings.ContainsFunc(name, isControl) {
		return &SpecError{"plan", fmt.Sprintf("%.70q is not 1 to %d bytes of UTF-8 without "+
			"control characters", name, MaxPlan)}
	}
	return nil
}

// named is the field that says what o is for.
func (o *Override) named() string {
	if o.Plan != "" {
		return "plan"
	}
	return "key"
}

// place is the pattern of o, which stands after others; of a plan none.
func (o *Override) place(before []override) (p pattern, _ *SpecError) {
	if o.Plan != "" {
		switch {
		case o.Key != "":
			return p, &SpecError{"plan", "stands beside a key; give one of the two"}
		case checkPlan(o.Plan) != nil:
			return p, checkPlan(o.Plan)
		case slices.ContainsFunc(before, func(b override) bool { return b.Plan == o.Plan }):
			return p, &SpecError{"plan", fmt.Sprintf("%q stands twice", o.Plan)}
		}
		return p, nil
	}
	p, err := parsePattern(o.Key)
	if err != nil {
		return p, &SpecError{"key", err.Error()}
	}
	if k := slices.IndexFunc(before, func(b override) bool {
		return b.Plan == "" && b.pattern.covers(&p)
	}); k >= 0 {
		return p, &SpecError{"key", fmt.Sprintf(
			"%q is never reached: overrides[%d], %q, comes first and matches all of it",
			o.Key, k, before[k].Key)}
	}
	return p, nil
}
