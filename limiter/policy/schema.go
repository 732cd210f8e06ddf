package policy

import (
	"encoding/json"

	"penstock/limiter"
)

// shape is a schema, or a part of one.
type shape map[string]any

// Schema is a JSON schema (draft 7) of files of limits, for editors: it completes names and words,
// and marks what has the wrong type. What fields mean together, only the parser knows.
func Schema() []byte {
	text, _ := json.MarshalIndent(shape{ // of texts: nothing can fail
		"$schema":              "http://json-schema.org/draft-07/schema#",
		"title":                "Limits of penstock",
		"type":                 "object",
		"additionalProperties": false,
		"minProperties":        1,
		"properties": shape{
			"limits": listShape(limitShape()),
			"rules":  listShape(ruleShape()),
		},
	}, "", "  ")
	return append(text, '\n')
}

func listShape(of shape) shape { return shape{"type": "array", "items": of} }

func fieldsShape(required []string, fields shape) shape {
	s := shape{"type": "object", "additionalProperties": false, "properties": fields}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func limitShape() shape {
	fields := shape{}
	for _, f := range limitFields {
		fields[f.name] = f.shape
	}
	own := shape{}
	for _, name := range candidateFields {
		own[name] = fields[name]
	}
	fields["candidate"] = described(fieldsShape(nil, own),
		"A limit that is tried beside this one: it counts by itself, and never decides.")
	return fieldsShape([]string{"name", "algorithm", "limit", "per"}, fields)
}

func described(s shape, text string) shape {
	s["description"] = text
	return s
}

func wordsShape(text string, list ...string) shape {
	return shape{"enum": list, "description": text}
}

func numberShape(text string, least int) shape {
	return shape{"type": "integer", "minimum": least, "description": text}
}

func rangeShape(text string, least, most int) shape {
	return described(shape{"type": "integer", "minimum": least, "maximum": most}, text)
}

// textShape is a text that is not empty, of at most so many bytes; 0: of any number.
func textShape(text string, most int) shape {
	s := shape{"type": "string", "minLength": 1, "description": text}
	if most > 0 {
		s["maxLength"] = most
	}
	return s
}

func patternShape(text, pattern string, most int) shape {
	s := textShape(text, most)
	s["pattern"] = pattern
	return s
}

// period is a length of time, as limiter.ParsePer reads it.
func periodShape(text string) shape {
	return shape{
		"type": "string", "description": text,
		"pattern": `^(([0-9]+(ms|s|m|h|d|w))+|second|minute|hour|day|week|month|year)$`,
	}
}

func overridesShape() shape {
	fields := shape{
		"key":    textShape("A pattern, an address or a network.", 0),
		"plan":   textShape("A plan, in place of a key: requests name it.", limiter.MaxPlan),
		"limit":  numberShape("Instead of the limit's.", 1),
		"burst":  numberShape("Instead of the limit's.", 1),
		"refill": numberShape("Instead of the limit's.", 1),
		"unlimited": shape{"const": true, "description": "The keys are admitted, and nothing is " +
			"counted."},
	}
	s := fieldsShape(nil, fields)
	s["anyOf"] = []shape{{"required": []string{"key"}}, {"required": []string{"plan"}}}
	return described(listShape(s), "Exceptions for keys; the first that matches counts.")
}

func ruleShape() shape {
	patterns := shape{"anyOf": []shape{
		{"type": "string"}, listShape(shape{"type": "string"}),
	}}
	apply := fieldsShape([]string{"limit", "key"}, shape{
		"limit": shape{"type": "string", "description": "Name of a limit."},
		"key":   shape{"type": "string", "description": "Of the counter, with {attributes}."},
		"plan":  shape{"type": "string", "description": "Of the limit's plans, with {attributes}."},
	})
	return fieldsShape(nil, shape{
		"name":  shape{"type": "string", "minLength": 1},
		"match": shape{"type": "object", "additionalProperties": patterns},
		"apply": described(listShape(apply), "Limits that a matching request falls under, "+
			"all or none."),
		"unlimited": shape{"const": true, "description": "A matching request is admitted as it " +
			"is."},
	})
}
