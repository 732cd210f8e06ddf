package door

import "crypto/tls"

// Adjusted is t with a change, which also holds for what t has for each caller.
func Adjusted(t *tls.Config, change func(*tls.Config)) *tls.Config {
	t = t.Clone()
	change(t)
	if get := t.GetConfigForClient; get != nil {
		t.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := get(hello)
			if c != nil {
				c = c.Clone()
				change(c)
			}
			return c, err
		}
	}
	return t
}
