#!/usr/bin/env python3
"""Checks the man pages and completions that deploy/pages.py writes.

  pages_test.py GPUCTL PAGES     PAGES: what pages.py wrote
"""
import os
import re
import subprocess
import sys
import unittest

GPUCTL, PAGES = sys.argv[1], sys.argv[2]


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


def complete(*words, runs=""):
    """What bash offers for a line of words; `runs` is what gpuctl ps prints meanwhile."""
    script = """
      gpuctl() { printf '%s' "$FAKE_RUNS"; }
      source "$1"; shift
      COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
      _gpuctl
      printf '%s\\n' "${COMPREPLY[@]}"
    """
    listing = subprocess.run(["bash", "-c", script, "-", os.path.join(PAGES, "bash/gpuctl"), *words],
                             check=True, capture_output=True, text=True,
                             env={**os.environ, "FAKE_RUNS": runs})
    assert not listing.stderr, listing.stderr
    return set(listing.stdout.split())


class PagesTest(unittest.TestCase):
    def test_every_verb_has_a_page_with_all_its_flags(self):
        self.assertGreater(len(verbs()), 20)
        for verb in verbs():
            page = read("man1", f"gpuctl-{verb}.1").replace("\\-", "-").replace("\\fB", "")
            for flag in flags(verb):
                self.assertIn(flag + "\\fR", page, verb)
            name = verb.replace("-", "\\-")
            self.assertIn(f".BR gpuctl\\-{name}", read("man1/gpuctl.1"))

    def test_a_page_has_its_sections_in_order(self):
        page = read("man1/gpuctl-launch.1")
        titles = re.findall(r"^\.SH (.*)", page, re.MULTILINE)
        self.assertEqual(titles[:5], ["NAME", "SYNOPSIS", "DESCRIPTION", "ARGUMENTS", "OPTIONS"])
        self.assertEqual(titles[-2:], ["NOTES", "SEE ALSO"])
        self.assertNotRegex(page, r"(?m)^['.](?!TH|SH|SS|TP|PP|BR?|I|nf|fi|R[SE]\b)")

    def test_a_flag_that_goes_on_in_the_next_line_keeps_all_its_words(self):
        self.assertRegex(read("man1/gpuctl-launch.1"),
                         r"\\-\\-pull=N keeps the newest N\. With \\-d, gpuctl keep brings them")

    def test_bash_offers_verbs_and_flags(self):
        self.assertEqual(complete("gpuctl", ""), set(verbs()) | {"help", "--help", "--version"})
        self.assertEqual(complete("gpuctl", "la"), {"launch"})
        self.assertEqual(complete("gpuctl", "launch", "--na"), {"--name"})
        self.assertEqual(complete("gpuctl", "-o", "json", "ps", "--off"), {"--offline"})
        for verb in verbs():
            self.assertLessEqual(flags(verb), complete("gpuctl", verb, "-"), verb)

    def test_bash_offers_values_and_runs(self):
        self.assertEqual(complete("gpuctl", "ps", "-o", ""), {"table", "wide", "json", "jsonl"})
        self.assertEqual(complete("gpuctl", "login", ""), {"runpod", "lambda", "vast"})
        line = '{"id":"01","name":"amber-fox-3","state":"running"}\n{"id":"02","name":"olive-1"}\n'
        self.assertEqual(complete("gpuctl", "pull", "", runs=line), {"amber-fox-3", "olive-1"})
        self.assertEqual(complete("gpuctl", "pull", "am", runs=line), {"amber-fox-3"})
        # A value of its own, and a command of the user's: bash offers files.
        self.assertEqual(complete("gpuctl", "launch", "--name", ""), set())
        self.assertEqual(complete("gpuctl", "launch", "--", "py"), set())

    def test_zsh_and_fish_have_every_verb_and_flag(self):
        zsh, fish = read("zsh/_gpuctl"), read("fish/gpuctl.fish")
        for verb in verbs():
            self.assertIn(f"    {verb}) _arguments", zsh)
            self.assertRegex(fish, rf"-f -a {verb} -d ")
            for flag in flags(verb):
                self.assertIn(f"'*{flag}[", zsh)
                self.assertRegex(fish, rf"__fish_seen_subcommand_from {verb}'.* -l {flag[2:]}\b")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
