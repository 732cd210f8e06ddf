package policy

import "penstock/limiter"

// overrideField is a field that an override may have.
type overrideField struct {
	name string
	read func(v value, o *limiter.Override) error
}

var overrideFields = []overrideField{
	{"key", func(v value, o *limiter.Override) (err error) { o.Key, err = v.text(); return err }},
	{"plan", func(v value, o *limiter.Override) error { return v.filled(&o.Plan, "name one") }},
	{"limit", func(v value, o *limiter.Override) (err error) {
		o.Limit, err = v.positive()
		return err
	}},
	{"burst", func(v value, o *limiter.Override) (err error) {
		o.Burst, err = v.positive()
		return err
	}},
	{"refill", func(v value, o *limiter.Override) (err error) {
		o.Refill, err = v.positive()
		return err
	}},
	{"unlimited", func(v value, o *limiter.Override) (err error) {
		o.Unlimited, err = v.onlyTrue()
		return err
	}},
}
