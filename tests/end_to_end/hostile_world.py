"""What the tests with hostile text share: a laptop's files, and how a test is run and judged."""
import contextlib
import os
import shutil
import sqlite3
import time

from hostile_words import Sheet, Words


def change(path, *statements):
    """Executes each SQL statement with its values, all in one transaction."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for sql, *values in statements:
            database.execute(sql, values)


@contextlib.contextmanager
def kept(*folders):
    """Undoes a verb's changes in them."""
    for folder in folders:
        shutil.copytree(folder, folder + ".kept", symlinks=True)
    try:
        yield
    finally:
        for folder in folders:
            # A process of the verb may be about to end, and write there; a removal would meet it.
            os.rename(folder, folder + ".used")
            os.rename(folder + ".kept", folder)
            shutil.rmtree(folder + ".used", ignore_errors=True)
            if os.path.exists(folder + ".used"):
                os.rename(folder + ".used", "%s.used-%d" % (folder, time.monotonic_ns()))


def run_dir(l, name):
    runs = l.json("ps", "-a")["runs"]
    (run,) = [run["run_id"] for run in runs if run["name"] == name]
    return os.path.join(l.env["GPUCTL_STATE_DIR"], "runs", run)


def row_of(l, name):
    path = os.path.join(l.env["GPUCTL_STATE_DIR"], "state.db")
    with contextlib.closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT run_id, target, job_id FROM runs WHERE name = ?",
                                [name]).fetchone()


def run(test, world):
    """Runs `test` in `world`. Raises when a text acted, or was shown nowhere."""
    words = Words()
    sheet = Sheet(words)
    sheet.check(test(world, words, sheet) or ())
