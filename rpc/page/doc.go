// Package page is how the doors answer over HTTP: JSON with its headers, and problems of RFC 9457
// that say what door.Explain says.
package page
