"""What tests of other public clients share: a look at the fields that such a client reads."""
NUMBER = (int, float)
TEXT_OR_NULL = (str, type(None))


def field(value, path):
    """Returns what is at "a.b.0.c" in `value`. Fails as the client would when it is missing."""
    for part in path.split("."):
        value = value[int(part)] if part.isdigit() else value[part]
    return value


def check_fields(test, value, table):
    """Checks each {path: type or (type, …)} of `table` in `value`."""
    for path, kind in table.items():
        found = field(value, path)
        test.assertIsInstance(found, kind, f"{path} is {found!r}")
        # Python takes a truth value for a number; other languages do not.
        if isinstance(found, bool):
            test.assertTrue(kind is bool, f"{path} is {found!r}")
