package main

import (
	"bytes"
	"encoding/json"
	"runtime/debug"
	"strings"
)

// component is a part of a program in CycloneDX's words (https://cyclonedx.org/docs/1.5/json).
type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Purl       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// bill is the bill of materials of a binary, in CycloneDX 1.5: what the linker has written into the
// binary itself. It has no time in it, so that it is the same for the same binary.
func bill(info *debug.BuildInfo, version, system string) ([]byte, error) {
	goos, goarch, _ := strings.Cut(system, "/")
	main := component{
		Type: "application", Name: "penstock", Version: version,
		Ref:        "pkg:golang/" + info.Main.Path + "@" + version,
		Properties: []property{{"goos", goos}, {"goarch", goarch}, {"go", info.GoVersion}},
	}
	main.Purl = main.Ref
	standard := strings.TrimPrefix(info.GoVersion, "go")
	parts := []component{library("stdlib", standard, "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, library(m.Path, m.Version, m.Sum))
	}
	var refs []string
	for _, p := range parts {
		refs = append(refs, p.Ref)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata":     map[string]any{"component": main},
		"components":   parts,
		"dependencies": []any{map[string]any{"ref": main.Ref, "dependsOn": refs}},
	})
	return b.Bytes(), err
}

// library is a module; sum is that of go.sum.
func library(path, version, sum string) component {
	purl := "pkg:golang/" + path + "@" + version
	c := component{Type: "library", Ref: purl, Name: path, Version: version, Purl: purl}
	if sum != "" {
		c.Properties = []property{{"go.sum", sum}}
	}
	return c
}
