package admin

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/catalog"
	"penstock/rpc/door"
	"penstock/rpc/notation"
)

// Change is one change of the limits of the whole cluster, by one client.
type Change struct {
	ctx     context.Context
	catalog *catalog.Catalog
	node    *cluster.Node
	rec     door.Recorder
	version string // that the client expects; empty: any
}

// NewChange makes a change by the client of rec.
func NewChange(ctx context.Context, c *catalog.Catalog, n *cluster.Node, rec door.Recorder,
	version string,
) Change {
	return Change{ctx, c, n, rec, version}
}

func (a *Service) change(ctx context.Context, version string) Change {
	return NewChange(ctx, a.Catalog, a.Node, door.RecorderOf(ctx, a.Audit), version)
}

// expected is nil if any version will do.
func (c Change) expected() (*catalog.Version, error) {
	if c.version == "" {
		return nil, nil
	}
	v, err := readVersion("version", c.version)
	return &v, err
}

func readVersion(field, text string) (catalog.Version, error) {
	v, err := catalog.ParseVersion(text)
	if err != nil {
		return v, door.Wrong(field, "%v", err)
	}
	return v, nil
}

// Put gives all nodes a limit.
func (c Change) Put(l *limiter.Limit) (catalog.Outcome, error) {
	return c.do("put limit", l.Name, func(v *catalog.Version) (catalog.Outcome, error) {
		return c.catalog.Put(c.ctx, c.rec.Who.Shown(), l, v)
	})
}

// Remove takes a limit away that was put.
func (c Change) Remove(name string) (catalog.Outcome, error) {
	return c.do("delete limit", name, func(v *catalog.Version) (catalog.Outcome, error) {
		return c.catalog.Delete(c.ctx, c.rec.Who.Shown(), name, v)
	})
}

// Rollback puts a limit as it was.
func (c Change) Rollback(name, to string) (catalog.Outcome, error) {
	version, err := readVersion("to", to)
	if err != nil {
		return catalog.Outcome{}, err
	}
	return c.do("roll limit back", name, func(v *catalog.Version) (catalog.Outcome, error) {
		return c.catalog.Rollback(c.ctx, c.rec.Who.Shown(), name, version, v)
	})
}

// Promote puts the candidate of a limit in the limit's place. If the limit is changed meanwhile, it
// stays so, and the error says it.
func (c Change) Promote(name string) (catalog.Outcome, error) {
	after, read, err := c.promoted(name)
	if err != nil {
		return catalog.Outcome{}, err
	}
	return c.do("promote limit", name, func(v *catalog.Version) (catalog.Outcome, error) {
		if v == nil {
			v = &read
		}
		return c.catalog.Put(c.ctx, c.rec.Who.Shown(), after, v)
	})
}

// promoted is a limit with its candidate in its place, and the version that it was read from. The
// version is read first: what is put in between is of another one.
func (c Change) promoted(name string) (after *limiter.Limit, read catalog.Version, err error) {
	read = c.catalog.Head(name).Version
	before := c.node.Limits()[name]
	if before == nil {
		return nil, read, said(catalog.ErrNotPut)
	}
	after, err = before.Promoted()
	if err == nil && after == nil {
		err = door.Wrong("name", "%q has no candidate to promote", name)
	}
	return after, read, err
}

// do makes a change, and records it.
func (c Change) do(
	action, name string, how func(*catalog.Version) (catalog.Outcome, error),
) (catalog.Outcome, error) {
	expected, err := c.expected()
	if err != nil {
		return catalog.Outcome{}, err
	}
	before := c.node.Limits()[name]
	out, err := how(expected)
	// a change that has lost a race was in force for a moment
	var conflict *catalog.ConflictError
	if err == nil || errors.As(err, &conflict) && conflict.Raced {
		recordLimit(c.rec, action, name, before, c.node.Limits()[name], err)
	}
	return out, said(err)
}

// CheckedLimit is the limit of s with its overrides, and with a candidate if tried is not nil.
func CheckedLimit(
	s limiter.Spec, overrides []limiter.Override, tried *limiter.Spec,
) (*limiter.Limit, error) {
	if s.Name == "" {
		return nil, door.Wrong("limit.name", "is missing; give the limit a name")
	}
	if why := limiter.Taken(s.Name); why != "" {
		return nil, &cluster.InputError{Field: "limit.name", Reason: why}
	}
	l, err := limiter.New(s, overrides...)
	if err == nil && tried != nil {
		l, err = l.WithCandidate(*tried, overrides...)
		err = UnderCandidate(err)
	}
	return l, UnderLimit(err)
}

// UnderLimit says in err that the field is one of a limit.
func UnderLimit(err error) error {
	var spec *limiter.SpecError
	if errors.As(err, &spec) {
		return &cluster.InputError{Field: "limit." + spec.Field, Reason: spec.Reason}
	}
	return err
}

// limitOf is the limit that a client wants to put.
func limitOf(in *penstockv1.PutLimitRequest) (*limiter.Limit, error) {
	if len(in.Definition) > 0 {
		if in.Limit != nil || in.Candidate != nil {
			return nil, door.Wrong("definition", "is a whole limit; leave limit and candidate out")
		}
		l, err := catalog.Define(in.Definition)
		if err != nil {
			return nil, door.Wrong("definition", "%v", err)
		}
		return l, nil
	}
	if in.Limit == nil {
		return nil, door.Wrong("limit", "is missing")
	}
	var tried *limiter.Spec
	if in.Candidate != nil {
		s := notation.ReadLimit(in.Candidate)
		tried = &s
	}
	return CheckedLimit(notation.ReadLimit(in.Limit), nil, tried)
}

// PutLimit makes or replaces one.
func (a *Service) PutLimit(
	ctx context.Context, in *penstockv1.PutLimitRequest,
) (*penstockv1.PutLimitResponse, error) {
	l, err := limitOf(in)
	var out catalog.Outcome
	if err == nil {
		out, err = a.change(ctx, in.Version).Put(l)
	}
	if err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.PutLimitResponse{
		Node: a.Node.ID(), Replaced: out.Replaced, Version: out.Version.String(),
		Reached: int32(out.Reached), Missing: out.Missing,
	}, nil
}

// DeleteLimit takes one away.
func (a *Service) DeleteLimit(
	ctx context.Context, in *penstockv1.DeleteLimitRequest,
) (*penstockv1.DeleteLimitResponse, error) {
	out, err := a.change(ctx, in.Version).Remove(in.Name)
	if err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.DeleteLimitResponse{
		Node: a.Node.ID(), Version: out.Version.String(), Reached: int32(out.Reached),
		Missing: out.Missing,
	}, nil
}

// PromoteLimit puts the candidate of a limit in the limit's place.
func (a *Service) PromoteLimit(
	ctx context.Context, in *penstockv1.PromoteLimitRequest,
) (*penstockv1.PromoteLimitResponse, error) {
	out, err := a.change(ctx, in.Version).Promote(in.Name)
	if err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.PromoteLimitResponse{
		Node: a.Node.ID(), Version: out.Version.String(), Reached: int32(out.Reached),
		Missing: out.Missing,
	}, nil
}

// RollbackLimit puts a limit as it was.
func (a *Service) RollbackLimit(
	ctx context.Context, in *penstockv1.RollbackLimitRequest,
) (*penstockv1.RollbackLimitResponse, error) {
	out, err := a.change(ctx, in.Version).Rollback(in.Name, in.To)
	if err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.RollbackLimitResponse{
		Node: a.Node.ID(), Version: out.Version.String(), Reached: int32(out.Reached),
		Missing: out.Missing,
	}, nil
}

// LimitHistory lists the changes.
func (a *Service) LimitHistory(
	_ context.Context, in *penstockv1.LimitHistoryRequest,
) (*penstockv1.LimitHistoryResponse, error) {
	out := &penstockv1.LimitHistoryResponse{Node: a.Node.ID()}
	for _, e := range a.Catalog.History(in.Name) {
		out.Entries = append(out.Entries, &penstockv1.LimitEntry{
			Name: e.Name, Version: e.Version.String(), Base: e.Base.String(), By: e.By,
			AtMs: e.AtMs, Definition: e.Limit,
		})
	}
	return out, nil
}

// said is an error of the catalog as doors say it; others stay what they are.
func said(err error) error {
	var conflict *catalog.ConflictError
	f := &door.Fault{}
	switch {
	case errors.As(err, &conflict):
		f.Code, f.Status, f.Field = codes.FailedPrecondition, http.StatusConflict, "version"
	case errors.Is(err, catalog.ErrGiven):
		f.Code, f.Status, f.Field = codes.FailedPrecondition, http.StatusConflict, "name"
	case errors.Is(err, catalog.ErrNotPut):
		f.Code, f.Status, f.Field = codes.NotFound, http.StatusNotFound, "name"
	case errors.Is(err, catalog.ErrNoEntry):
		f.Code, f.Status, f.Field = codes.NotFound, http.StatusNotFound, "version"
	case errors.Is(err, catalog.ErrManyPut), errors.Is(err, catalog.ErrFull),
		errors.Is(err, catalog.ErrNoVersion):
		f.Code, f.Status = codes.ResourceExhausted, http.StatusTooManyRequests
	case errors.Is(err, catalog.ErrNotSaved):
		f.Code, f.Status = codes.Unavailable, http.StatusServiceUnavailable
	default:
		return err
	}
	f.Text = err.Error()
	return f
}
