package limiter

import (
	"fmt"
	"strings"
)

// Names of limits that doors make by themselves, of what their requests say. A limit of files or of
// PUT with such a name would share its counters with those, or stand in their way.
const (
	InlineName   = "inline"      // limits that requests bring along without a name
	ThrottleName = "cl.throttle" // limits of CL.THROTTLE
	envoyMark    = "envoy/"      // begins the names of limits of Envoy's domains
)

// EnvoyName is the name of the limits of one of Envoy's domains.
func EnvoyName(domain string) string { return envoyMark + domain }

// EnvoyDomain is the domain that has limits of this name; the second result is false if none has.
func EnvoyDomain(name string) (domain string, found bool) {
	return strings.CutPrefix(name, envoyMark)
}

// Taken says why no limit of files or of PUT can have a name; it is empty if one can.
func Taken(name string) string {
	if why := TakenInline(name); why != "" {
		return why
	}
	of := ""
	switch {
	case name == InlineName:
		of = "limits that requests bring along without a name"
	case name == ThrottleName:
		of = "limits of CL.THROTTLE at the Redis door"
	case strings.HasPrefix(name, envoyMark):
		of = "limits of Envoy's domains"
	default:
		return ""
	}
	return fmt.Sprintf("%.100q is the name of %s; choose another one", name, of)
}

// TakenInline says why no limit that a request brings along can have a name; it is empty if one
// can. The limits of Envoy's domains it may mean: their right is asked for where they are charged.
func TakenInline(name string) string {
	if IsCandidateName(name) {
		return fmt.Sprintf("%.100q is the name of a candidate's counters; choose another one", name)
	}
	return ""
}
