"""Holds every JSON document that a test gets of gpuctl to docs/schemas.

Whoever imports this module has each `-o json` and `-o jsonl` output checked that subprocess collects
(run, communicate, check_output): it is strict JSON in UTF-8, each document fits exactly one
alternative of its verb's schema, a success has a document, an error has the process's exit code,
and stderr is empty. With GPUCTL_JSON_SEEN, a directory, each script also leaves there a file with
the names of the documents that it got, for json_seen.py.
"""
import atexit
import hashlib
import json
import os
import re
import subprocess
import sys

SCHEMAS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "schemas")
# Their stdout is the bytes of a job or of a command; only their errors are JSON.
PASS_BYTES = ("logs", "exec", "ssh")
# Of a longer list only the first and the last elements are looked at, for the sake of time.
LONGEST_LIST = 400

try:
    import jsonschema
except ImportError:
    jsonschema = None
# Older ones do not know the drafts that the schemas are of.
CAN_CHECK = jsonschema is not None and hasattr(jsonschema, "Draft202012Validator")

seen = set()  # (verb, document)


class _Schemas:
    def __init__(self):
        self._files = {}
        self._checks = {}

    def file(self, name):
        if name not in self._files:
            path = os.path.join(SCHEMAS, name + ".json")
            assert os.path.exists(path), "gpuctl %s has no schema in docs/schemas" % name
            with open(path, encoding="utf-8") as file:
                self._files[name] = json.load(file)
        return self._files[name]

    def checks(self, name):
        """Returns the validators of the documents that the schema allows, by their names."""
        if name not in self._checks:
            schema = self.file(name)
            store = {other[:-5]: None for other in os.listdir(SCHEMAS) if other.endswith(".json")}
            store = {"file:///schemas/%s.json" % other: self.file(other) for other in store}
            resolver = jsonschema.RefResolver("file:///schemas/%s.json" % name, schema, store=store)
            parts = schema.get("oneOf") or [{"$ref": schema["$ref"]}]
            self._checks[name] = {
                part["$ref"].split("/")[-1]: jsonschema.Draft202012Validator(part, resolver=resolver)
                for part in parts}
        return self._checks[name]


schemas = _Schemas()


def shortened(value):
    """Returns the document without the middle of long lists."""
    if isinstance(value, dict):
        return {key: shortened(each) for key, each in value.items()}
    if isinstance(value, list):
        if len(value) > LONGEST_LIST:
            value = value[:LONGEST_LIST // 2] + value[-LONGEST_LIST // 2:]
        return [shortened(each) for each in value]
    return value


def no_constant(word):
    raise ValueError("%s is no JSON" % word)


def no_double(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError("a name is there twice: %s" % names)
    return dict(pairs)


def read_strictly(line):
    """Returns the document of a line, bytes. Raises ValueError where a strict reader would."""
    return json.loads(line.decode("utf-8"), parse_constant=no_constant, object_pairs_hook=no_double)


def check_document(verb, document):
    """Expects that the document fits exactly one alternative of the schema. Returns its name."""
    if not CAN_CHECK:
        return None
    document = shortened(document)
    checks = schemas.checks(verb)
    fit = [name for name, check in checks.items() if check.is_valid(document)]
    if len(fit) != 1:
        problems = []
        for name, check in checks.items():
            errors = list(check.iter_errors(document))
            if errors:
                worst = jsonschema.exceptions.best_match(errors)
                problems.append((len(errors), "%s: at %s: %s" % (
                    name, "/".join(map(str, worst.absolute_path)) or "the top", worst.message[:300])))
        raise AssertionError("gpuctl %s: a document fits %s of docs/schemas/%s.json\n%s\n%s" % (
            verb, fit or "none", verb, "\n".join(text for _, text in sorted(problems)),
            json.dumps(document)[:1500]))
    seen.add((verb, fit[0]))
    return fit[0]


def words_of(args):
    """Returns gpuctl's own arguments in a command, without what is behind `--`; None: no gpuctl."""
    if not isinstance(args, (list, tuple)):
        return None
    words = [os.fsdecode(word) for word in args]
    for at, word in enumerate(words):
        if os.path.basename(word) == "gpuctl" and "/" in word:
            words = words[at + 1:]
            return words[:words.index("--")] if "--" in words else words
    return None


def format_of(words):
    """Returns json, jsonl or None."""
    found = None
    for at, word in enumerate(words):
        behind = words[at + 1] if at + 1 < len(words) else ""
        if word == "--json":
            found = "json"
        elif word in ("-o", "--output"):
            found = behind
        elif word.startswith("--output="):
            found = word[9:]
        elif word.startswith("-o") and len(word) > 2:
            found = word[2:].lstrip("=")
    return found if found in ("json", "jsonl") else None


def verb_of(words):
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("-o", "--output") else 1
    return words[at] if at < len(words) else None


def check_output(args, code, out, err):
    """Expects that a command's output is as docs/json.md and docs/schemas say."""
    words = words_of(args)
    if words is None or out is None:
        return
    kind, verb = format_of(words), verb_of(words)
    no_result = any(re.match("-h|--h|--version|help$", word) for word in words)
    if kind is None or verb is None or no_result or code is None or code < 0 or code == 137:
        return
    out = out.encode() if isinstance(out, str) else out
    err = err.encode() if isinstance(err, str) else err
    what = "gpuctl %s (exit %d)" % (" ".join(words), code)
    known = os.path.exists(os.path.join(SCHEMAS, verb + ".json"))
    lines = out.splitlines()
    if verb in PASS_BYTES and "--setup" not in words:
        lines = [line for line in lines if line.startswith(b'{"schema_version":1,"error"')]
    elif verb == "run-schema" or verb == "json-schema":
        lines = [out] if out else []
    documents = []
    for line in lines:
        try:
            documents.append(read_strictly(line))
        except ValueError as error:
            raise AssertionError("%s: no strict JSON, %s: %r" % (what, error, line[:600])) from None
    for document in documents:
        # An unknown verb has only errors.
        name = check_document(verb if known or "error" not in document else "error", document)
        if name == "error_document":
            assert document["error"]["exit_code"] == code, "%s: %s" % (what, document)
    if verb in PASS_BYTES:
        return
    # Whoever reads lines while they come has had that of forward already.
    silent = kind == "jsonl" or code == 130 or verb == "forward"
    assert documents or silent, "%s printed no document" % what
    assert not err, "%s wrote to stderr: %r" % (what, err[-600:])


class CheckedPopen(subprocess.Popen):
    def communicate(self, *args, **more):
        out, err = super().communicate(*args, **more)
        check_output(self.args, self.returncode, out, err)
        return out, err


def leave_seen():
    folder = os.environ.get("GPUCTL_JSON_SEEN")
    if not folder or not CAN_CHECK:
        return
    os.makedirs(folder, exist_ok=True)
    name = "%s-%s" % (os.path.basename(sys.argv[0]),
                      hashlib.sha256("\0".join(sys.argv[1:]).encode()).hexdigest()[:8])
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.writelines("%s %s\n" % each for each in sorted(seen))


if CAN_CHECK:
    subprocess.Popen = CheckedPopen
    atexit.register(leave_seen)
