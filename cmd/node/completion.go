package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// completionVerb prints what makes a shell complete the verbs, flags and values of this program.
type completionVerb struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is printed below the verb's line.
func (completionVerb) Help() string {
	return "For this shell alone: source <(penstock completion bash), or " +
		"penstock completion fish | source. For all shells of this machine, as root: " +
		"penstock completion bash >/etc/bash_completion.d/penstock, " +
		"penstock completion zsh >/usr/local/share/zsh/site-functions/_penstock, or " +
		"penstock completion fish >/etc/fish/completions/penstock.fish."
}

func (v *completionVerb) Run(sh shell, ctx *kong.Context) error {
	write := map[string]func([]command) string{
		"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion,
	}[v.Shell]
	_, err := io.WriteString(sh.out, write(commandsOf(ctx.Kong)))
	return err
}

// quoted is text as one word of a POSIX shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// bashWord writes a suggestion as the script below reads it.
func (s suggestion) bashWord() string {
	switch {
	case s.folders:
		return "@folders"
	case s.files:
		return "@files"
	}
	return strings.Join(s.words, "|")
}

// bashWalk finds out which verb the line has, and what is expected at the cursor. It joins again
// what bash splits at = and at colons.
const bashWalk = `
_penstock() {
	local words=() word at= verbs flags values args flag= kind= cur prefix= i n=0
	COMPREPLY=()
	for ((i = 1; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if ((${#words[@]})) && [[ $word == [=:]* || ${COMP_WORDS[i - 1]} == [=:] ]]; then
			words[${#words[@]} - 1]+=$word
		else
			words+=("$word")
		fi
	done
	cur=${words[${#words[@]} - 1]}
	_penstock_at ''
	for word in "${words[@]:0:${#words[@]}-1}"; do
		if [[ -n $flag ]]; then
			flag=
			continue
		fi
		case $word in
		--*=*) ;;
		-*) [[ " $values" == *" $word="* ]] && flag=$word ;;
		*)
			if [[ $n == 0 && " $verbs " == *" $word "* ]]; then
				at=${at:+$at }$word
				_penstock_at "$at"
			else
				n=$((n + 1))
			fi
			;;
		esac
	done
	if [[ $cur == --*=* ]]; then
		flag=${cur%%=*}
		cur=${cur#*=}
		[[ $COMP_WORDBREAKS == *=* ]] || prefix=$flag=
	fi
	if [[ -n $flag ]]; then
		for word in $values; do
			[[ $word == "$flag="* ]] && kind=${word#*=}
		done
	elif [[ $cur == -* ]]; then
		COMPREPLY=($(compgen -W "$flags" -- "$cur"))
		return
	elif [[ $n == 0 && -n $verbs ]]; then
		kind=${verbs// /|}
	else
		i=0
		for word in $args; do
			[[ $i == "$n" ]] && kind=${word#=}
			i=$((i + 1))
		done
	fi
	case $kind in
	@files)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -P "$prefix" -f -- "$cur")
		;;
	@folders)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -P "$prefix" -d -- "$cur")
		;;
	?*) COMPREPLY=($(compgen -P "$prefix" -W "${kind//|/ }" -- "$cur")) ;;
	esac
}
complete -F _penstock penstock
`

func bashCompletion(all []command) string {
	var b strings.Builder
	b.WriteString("# Completion of penstock for bash, made by: penstock completion bash\n\n")
	b.WriteString("_penstock_at() {\n\tcase $1 in\n")
	for _, c := range all {
		var verbs, flags, values, args []string
		for _, n := range c.verbs() {
			verbs = append(verbs, n.Name)
		}
		for _, f := range c.flags() {
			flags = append(flags, "--"+f.Name)
			if takesValue(f) {
				for _, name := range spellings(f) {
					values = append(values, name+"="+suggestionFor(f.Value).bashWord())
				}
			}
		}
		for _, p := range c.node.Positional {
			args = append(args, "="+suggestionFor(p).bashWord())
		}
		fmt.Fprintf(&b, "\t%s)\n", quoted(c.path))
		for _, list := range []struct {
			name  string
			words []string
		}{{"verbs", verbs}, {"flags", flags}, {"values", values}, {"args", args}} {
			fmt.Fprintf(&b, "\t\t%s=%s\n", list.name, quoted(strings.Join(list.words, " ")))
		}
		b.WriteString("\t\t;;\n")
	}
	b.WriteString("\tesac\n}\n" + bashWalk)
	return b.String()
}

// spellings are the words that give f on a command line.
func spellings(f *kong.Flag) []string {
	if f.Short == 0 {
		return []string{"--" + f.Name}
	}
	return []string{"--" + f.Name, "-" + string(f.Short)}
}

// zshText hides what has a meaning in the specifications of zsh's _arguments.
var zshText = strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`)

// zshAction is what zsh does where a value is expected.
func (s suggestion) zshAction() string {
	switch {
	case s.folders:
		return "_files -/"
	case s.files:
		return "_files"
	case len(s.words) > 0:
		return "(" + strings.Join(s.words, " ") + ")"
	}
	return ""
}

func zshFunction(path string) string {
	return strings.TrimSuffix("_penstock_"+strings.ReplaceAll(path, " ", "_"), "_")
}

func zshCompletion(all []command) string {
	var b strings.Builder
	b.WriteString("#compdef penstock\n")
	b.WriteString("# Completion of penstock for zsh, made by: penstock completion zsh\n")
	for _, c := range all {
		fmt.Fprintf(&b, "\n%s() {\n", zshFunction(c.path))
		b.WriteString("\tlocal curcontext=$curcontext state line\n\ttypeset -A opt_args\n")
		b.WriteString("\t_arguments -C")
		specs := zshFlags(c)
		if len(c.verbs()) > 0 {
			specs = append(specs, "1: :->verb", "*:: :->rest")
		}
		for i, p := range c.node.Positional {
			action := suggestionFor(p).zshAction()
			specs = append(specs, fmt.Sprintf("%d:%s:%s", i+1, zshText.Replace(p.Name), action))
		}
		for _, s := range specs {
			b.WriteString(" \\\n\t\t" + quoted(s))
		}
		b.WriteString("\n" + zshVerbs(c) + "}\n")
	}
	b.WriteString("\nif [[ $funcstack[1] == _penstock ]]; then\n\t_penstock \"$@\"\n")
	b.WriteString("else\n\tcompdef _penstock penstock\nfi\n")
	return b.String()
}

// zshFlags are the specifications of a verb's flags, as zsh's _arguments reads them.
func zshFlags(c command) (specs []string) {
	for _, f := range c.flags() {
		after := ""
		if takesValue(f) {
			after = ":" + zshText.Replace(f.Name) + ":" + suggestionFor(f.Value).zshAction()
		}
		for _, name := range spellings(f) {
			if takesValue(f) && strings.HasPrefix(name, "--") {
				name += "="
			}
			specs = append(specs, name+"["+zshText.Replace(f.Help)+"]"+after)
		}
	}
	return specs
}

// zshVerbs completes the verb that follows, or calls the function of the one that is there.
func zshVerbs(c command) string {
	if len(c.verbs()) == 0 {
		return ""
	}
	var offered, called string
	for _, n := range c.verbs() {
		offered += "\n\t\t\t" + quoted(n.Name+":"+zshText.Replace(n.Help))
		function := zshFunction(strings.TrimSpace(c.path + " " + n.Name))
		called += fmt.Sprintf("\t\t%s) %s ;;\n", n.Name, function)
	}
	return "\tcase $state in\n\tverb)\n\t\tlocal -a verbs=(" + offered +
		"\n\t\t)\n\t\t_describe verb verbs\n\t\t;;\n\trest)\n\t\tcase $line[1] in\n" + called +
		"\t\tesac\n\t\t;;\n\tesac\n"
}

// fishWalk compares the words of the line that are no flags with those of a verb.
const fishWalk = `
function __penstock_words
	set -l tokens (commandline -opc)
	string match -v -- '-*' $tokens[2..]
end
function __penstock_below # VERB…: the line has this verb
	set -l words (__penstock_words)
	test (count $words) -ge (count $argv); or return 1
	for i in (seq (count $argv))
		test $words[$i] = $argv[$i]; or return 1
	end
end
function __penstock_exactly # VERB…: the line has this verb, and no word after it
	test (count (__penstock_words)) -eq (count $argv); and __penstock_below $argv
end
function __penstock_after # NUMBER VERB…: the line has this verb, and so many words after it
	__penstock_below $argv[2..]; or return 1
	test (count (__penstock_words)) -ge (math $argv[1] + (count $argv) - 1)
end
complete -c penstock -f
`

// fishText is text as one word of fish.
func fishText(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

func fishCompletion(all []command) string {
	var b strings.Builder
	b.WriteString("# Completion of penstock for fish, made by: penstock completion fish\n")
	b.WriteString(fishWalk)
	offer := func(where, path, what string) {
		where = fishText(strings.TrimSpace(where + " " + path))
		fmt.Fprintf(&b, "complete -c penstock -n %s%s\n", where, what)
	}
	for _, c := range all {
		for _, n := range c.verbs() {
			offer("__penstock_exactly", c.path, " -a "+n.Name+" -d "+fishText(n.Help))
		}
		flags := c.flags()
		if c.path != "" { // the program's own are offered behind every verb already
			flags = flags[:len(flags)-len(all[0].node.Flags)]
		}
		for _, f := range flags {
			what := " -l " + f.Name
			if f.Short != 0 {
				what += " -s " + string(f.Short)
			}
			if takesValue(f) {
				what += " -r" + suggestionFor(f.Value).fishOptions()
			}
			offer("__penstock_below", c.path, what+" -d "+fishText(f.Help))
		}
		for i, p := range c.node.Positional {
			if options := suggestionFor(p).fishOptions(); options != fishNothing {
				offer("__penstock_after "+strconv.Itoa(i), c.path, options)
			}
		}
	}
	return b.String()
}

// fishNothing keeps fish from offering files.
const fishNothing = " -f"

// fishOptions are options of fish's complete for a value.
func (s suggestion) fishOptions() string {
	switch {
	case s.folders:
		return " -f -a '(__fish_complete_directories)'"
	case s.files:
		return " -F"
	case len(s.words) > 0:
		return " -f -a '" + strings.Join(s.words, " ") + "'"
	}
	return fishNothing
}
