package policy

import (
	"encoding/json"
	"strings"

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
		fields[f.name] = fieldShape(f.name)
	}
	own := shape{}
	for _, name := range candidateFields {
		own[name] = fieldShape(name)
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

func flagShape(text string) shape { return shape{"type": "boolean", "description": text} }

// period is a length of time, as limiter.ParsePer reads it.
func periodShape(text string) shape {
	return shape{
		"type": "string", "description": text,
		"pattern": `^(([0-9]+(ms|s|m|h|d|w))+|second|minute|hour|day|week|month|year)$`,
	}
}

// fieldShape is the schema of one field of a limit.
func fieldShape(name string) shape {
	switch name {
	case "name":
		return shape{
			"type": "string", "minLength": 1, "maxLength": limiter.MaxName,
			"description": "What requests and rules call the limit.",
		}
	case "algorithm":
		return wordsShape("How requests are counted.", strings.Split(limiter.AlgorithmNames(),
			", ")...)
	case "limit":
		return numberShape("Units in each period.", 1)
	case "per":
		return periodShape("The period: 10s, 5m, 1h30m, or a word.")
	case "time_zone":
		return shape{"type": "string", "minLength": 1, "description": "Of windows of a calendar."}
	case "overrides":
		return described(listShape(overrideShape()), "Exceptions for keys; the first that "+
			"matches counts.")
	case "min_gap":
		return periodShape("Least time between two requests that count.")
	case "max_delay":
		return periodShape("Longest wait of a request beyond the limit, with on_deny: delay.")
	case "parent":
		return shape{
			"type": "string", "minLength": 1, "maxLength": limiter.MaxName,
			"description": "Name of the limit above, which is charged too, under the key up to " +
				"its last slash.",
		}
	case "candidate":
		return shape{}
	}
	if s := wordShape(name); s != nil {
		return s
	}
	if s := answerShape(name); s != nil {
		return s
	}
	return plainShape(name)
}

// wordShape is that of a field with a few words; nil: it is not such a field.
func wordShape(name string) shape {
	switch name {
	case "anchor":
		return wordsShape("What windows begin with.", "epoch", "first_hit")
	case "on_error":
		return wordsShape("Answer while no owner answers.", "local", "allow", "deny")
	case "unsettled":
		return wordsShape("What a reservation costs that nobody settles.", "charge", "release")
	case "on_deny":
		return wordsShape("What a refusal is to its caller.", "reject", "shadow", "tag",
			"deprioritize", "delay")
	case "consistency":
		return wordsShape("Where requests are decided.", "exact", "leased", "replicated")
	case "replication":
		return wordsShape("Whether an answer waits for a copy.", "async", "sync")
	case "on_partition":
		return wordsShape("Answer of a minority.", "proportional", "deny", "open")
	}
	return nil
}

// answerShape is that of a field of limiter.Answers; nil: it is not such a field.
func answerShape(name string) shape {
	text := func(what string, most int) shape {
		return shape{"type": "string", "minLength": 1, "maxLength": most, "description": what}
	}
	switch name {
	case "spread":
		return shape{
			"type": "string", "pattern": `^(100|[1-9]?[0-9])%$`,
			"description": "How much longer retry_after may be.",
		}
	case "status":
		return described(shape{"type": "integer", "minimum": 400, "maximum": 599},
			"HTTP status of a denial.")
	case "body":
		return text("Body of a denial over HTTP.", limiter.MaxBody)
	case "content_type":
		s := text("Media type of the body.", limiter.MaxContentType)
		s["pattern"] = `^[!-~]+/[!-~]+(\s*;.*)?$`
		return s
	case "tag":
		s := text("Mark of a request beyond the limit, with on_deny: tag.", limiter.MaxTag)
		s["pattern"] = `^[!-~]+$`
		return s
	case "tier":
		return described(shape{"type": "integer", "minimum": 1, "maximum": limiter.MaxTier},
			"Tier of a request beyond the limit, with on_deny: deprioritize.")
	}
	return nil
}

// plainShape is that of a number or a flag.
func plainShape(name string) shape {
	switch name {
	case "burst":
		return numberShape("Most units at once.", 0)
	case "refill":
		return numberShape("Tokens that come each period.", 1)
	case "buckets":
		return numberShape("Parts of the period.", 1)
	case "max_debt":
		return numberShape("Most that a report may charge beyond what there is.", 0)
	case "count_rejected":
		return flagShape("A refused request counts too.")
	case "strict":
		return flagShape("An empty bucket waits a whole period for its refill.")
	case "drain":
		return flagShape("A refused request takes all that is left.")
	case "lenient":
		return flagShape("The part that is cut by the beginning of the window does not count.")
	case "client_time":
		return flagShape("Requests may say their time.")
	case "sessions":
		return flagShape("Decisions say when their session began.")
	case "dry_run":
		return flagShape("Decide and count, and never deny.")
	}
	panic("policy: the schema lacks the field " + name)
}

func overrideShape() shape {
	fields := shape{
		"key": shape{"type": "string", "minLength": 1, "description": "A pattern, an address or " +
			"a network."},
		"plan": shape{
			"type": "string", "minLength": 1, "maxLength": limiter.MaxPlan,
			"description": "A plan, in place of a key: requests name it.",
		},
		"limit":  numberShape("Instead of the limit's.", 1),
		"burst":  numberShape("Instead of the limit's.", 1),
		"refill": numberShape("Instead of the limit's.", 1),
		"unlimited": shape{"const": true, "description": "The keys are admitted, and nothing is " +
			"counted."},
	}
	s := fieldsShape(nil, fields)
	s["anyOf"] = []shape{{"required": []string{"key"}}, {"required": []string{"plan"}}}
	return s
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
