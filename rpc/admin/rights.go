package admin

import (
	"strings"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/access"
)

// MethodRights are the rights that methods of penstock.v1.Admin need. One that is not listed needs
// the right to write.
var MethodRights = map[string]access.Right{
	penstockv1.Admin_Members_FullMethodName: access.Read,
	penstockv1.Admin_Ring_FullMethodName:    access.Read,
	penstockv1.Admin_Keys_FullMethodName:    access.Read,
	penstockv1.Admin_Top_FullMethodName:     access.Read,
	penstockv1.Admin_Holds_FullMethodName:   access.Read,
	penstockv1.Admin_Limits_FullMethodName:  access.Read,

	penstockv1.Admin_LimitHistory_FullMethodName: access.Read,
}

// MayCall is nil if the client of t may call a method.
func MayCall(t *access.Ticket, method string) error {
	if !strings.HasPrefix(method, "/"+penstockv1.Admin_ServiceDesc.ServiceName+"/") {
		_, err := t.Client()
		return err
	}
	if right, listed := MethodRights[method]; listed {
		return t.May(right)
	}
	return t.May(access.Write)
}
