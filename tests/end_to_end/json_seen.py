#!/usr/bin/env python3
"""Checks that the tests have got every document that docs/schemas allows.

  json_seen.py GPUCTL SEEN_DIR

SEEN_DIR has what json_check.py left of each script that ran. A document that no test got fails this
test, and so does a verb without a schema; where scripts have not run yet, it is skipped.
"""
import glob
import os
import re
import subprocess
import sys

import json_check

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77
# Scripts that check themselves otherwise, or whose machines are not everywhere.
OPTIONAL = {"bare_system.py", "old_kernel.py", "examples.py", "json_seen.py"}


def main():
    gpuctl, folder = sys.argv[1:]
    if not json_check.CAN_CHECK:
        print("python3-jsonschema is missing or too old")
        return SKIPPED
    help_text = subprocess.run([gpuctl, "--help"], check=True, capture_output=True, text=True).stdout
    verbs = set(re.findall(r"^  ([a-z-]+) +", help_text, re.MULTILINE))
    files = {name[:-5] for name in os.listdir(json_check.SCHEMAS) if name.endswith(".json")}
    assert files == verbs | {"common", "error", "notify"}, sorted(files ^ verbs)
    wanted = {(name, document) for name in files - {"common"}
              for document in json_check.schemas.checks(name) if document != "error_document"}
    # The error is the same for all; that of each verb is wanted where it is all that there is.
    wanted |= {(name, "error_document") for name in files - {"common"}
               if list(json_check.schemas.checks(name)) == ["error_document"]}
    seen, scripts = set(), set()
    for path in glob.glob(os.path.join(folder, "*")):
        scripts.add(os.path.basename(path).rsplit("-", 1)[0])
        with open(path, encoding="utf-8") as file:
            seen |= {tuple(line.split()) for line in file}
    unseen = sorted(" ".join(each) for each in wanted - seen)
    print("%d of %d documents were seen, from %d scripts" % (
        len(wanted) - len(unseen), len(wanted), len(scripts)))
    if not unseen:
        return 0
    missing = []
    for path in glob.glob(os.path.join(HERE, "*.py")):
        with open(path, encoding="utf-8") as file:
            is_test = "run_tests(globals())" in file.read()
        if is_test and os.path.basename(path) not in scripts | OPTIONAL:
            missing.append(os.path.basename(path))
    print("no test got: " + ", ".join(unseen))
    if missing:
        print("these tests have not run: " + " ".join(sorted(missing)))
        return SKIPPED
    return 1


if __name__ == "__main__":
    sys.exit(main())
