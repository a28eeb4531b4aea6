#!/usr/bin/env python3
"""Checks the man pages and completions that deploy/pages.sh writes for packages.

  pages_test.py GPUCTL PAGES     PAGES: what pages.sh wrote
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

GPUCTL, PAGES = os.path.abspath(sys.argv[1]), sys.argv[2]


def ask(*arguments):
    return subprocess.run([GPUCTL, *arguments], check=True, capture_output=True, text=True).stdout


def verbs():
    return re.findall(r"^  ([a-z-]+) {2,}", ask("--help"), re.MULTILINE)


def flags(verb):
    """The long flags that a verb's help lists."""
    return set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", ask(verb, "--help"), re.MULTILINE))


def read(*parts):
    with open(os.path.join(PAGES, *parts), encoding="utf-8") as file:
        return file.read()


def complete(*words):
    """What bash offers for a line of words, in an empty home, by the packaged file."""
    script = """
      source "$1"; shift
      COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
      _gpuctl
      printf '%s\\n' "${COMPREPLY[@]}"
    """
    with tempfile.TemporaryDirectory() as home:
        path = os.path.dirname(GPUCTL) + ":" + os.environ["PATH"]
        listing = subprocess.run(
            ["bash", "-c", script, "-", os.path.join(os.path.abspath(PAGES), "bash/gpuctl"), *words],
            check=True, capture_output=True, text=True, cwd=home,
            env={"PATH": path, "HOME": home, "LANG": "C"})
    assert not listing.stderr, listing.stderr
    return set(listing.stdout.split())


class PagesTest(unittest.TestCase):
    def test_every_verb_has_a_page_with_all_its_flags(self):
        self.assertGreater(len(verbs()), 20)
        self.assertEqual(sorted(os.listdir(os.path.join(PAGES, "man1"))),
                         sorted(["gpuctl.1"] + [f"gpuctl-{verb}.1" for verb in verbs()]))
        for verb in verbs():
            page = read("man1", f"gpuctl-{verb}.1").replace("\\-", "-").replace("\\fB", "")
            for flag in flags(verb):
                self.assertIn(flag + "\\fR", page, verb)
            name = verb.replace("-", "\\-")
            self.assertIn(f".BR gpuctl\\-{name}", read("man1/gpuctl.1"))
            self.assertIn("\n.SH EXAMPLES\n", page, verb)

    def test_a_page_has_its_sections_in_order(self):
        page = read("man1/gpuctl-launch.1")
        titles = re.findall(r"^\.SH (.*)", page, re.MULTILINE)
        self.assertEqual(titles[:5], ["NAME", "SYNOPSIS", "DESCRIPTION", "ARGUMENTS", "OPTIONS"])
        self.assertEqual(titles[-3:], ["NOTES", "EXAMPLES", "SEE ALSO"])
        self.assertNotRegex(page, r"(?m)^['.](?!TH|SH|SS|TP|PP|BR?|I|nf|fi|R[SE]\b)")

    def test_a_flag_that_goes_on_in_the_next_line_keeps_all_its_words(self):
        self.assertRegex(read("man1/gpuctl-launch.1"),
                         r"\\-\\-pull=N keeps the newest N\. gpuctl keep goes on with "
                         r"it when this gpuctl is gone, and after \\-d")

    def test_every_help_has_examples_above_its_flags(self):
        for verb in verbs():
            text = ask(verb, "--help")
            self.assertIn("\nExamples:\n  ", text, verb)
            self.assertLess(text.index("\nExamples:"), text.index("\nUsage: "), verb)

    def test_the_completions_are_those_of_gpuctl_itself(self):
        for shell, name in (("bash", "gpuctl"), ("zsh", "_gpuctl"), ("fish", "gpuctl.fish")):
            self.assertEqual(read(shell, name), ask("completion", shell))

    def test_the_packaged_file_completes(self):
        self.assertLessEqual(set(verbs()), complete("gpuctl", ""))
        self.assertEqual(complete("gpuctl", "la"), {"launch"})
        self.assertEqual(complete("gpuctl", "launch", "--na"), {"--name"})
        self.assertEqual(complete("gpuctl", "login", "ru"), {"runpod"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
