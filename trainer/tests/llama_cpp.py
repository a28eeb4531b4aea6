"""llama.cpp for tests: what npm brings of it, and a call of llama_truth.js."""
import glob
import json
import os
import subprocess

import npm_packages

HERE = os.path.dirname(os.path.abspath(__file__))


def install(work):
    """Returns the folder of the packages, or None, saying why, where npm cannot bring them or there is
    no driver for `ask`."""
    if not vulkan_driver():
        print("skipped: Mesa's Vulkan driver for the CPU is not here")
        return None
    npm = os.path.join(work, "npm")
    # Builds for graphics cards are optional packages, and large.
    if not npm_packages.install("llama", npm, "--omit=optional"):
        print("skipped: npm could not install llama.cpp")
        return None
    return npm


def vulkan_driver():
    """Returns the file that names Mesa's driver for the CPU, or nothing."""
    return "".join(glob.glob("/usr/share/vulkan/icd.d/lvp_icd.*")[:1])


def ask(npm, work, jobs, vulkan=False):
    """Returns what llama_truth.js answers to the jobs.

    llama.cpp's code for the CPU takes GELU from a table of 16-bit values by 16-bit arguments. With
    `vulkan` its code for graphics cards computes, by Mesa's driver for the CPU: GELU in fp32, and a
    position at a time, as several at once were off by 1e-2 there in every family.
    """
    jobs_file, answers_file = work + "/jobs.json", work + "/answers.json"
    with open(jobs_file, "w", encoding="utf-8") as file:
        json.dump(jobs, file)
    # llama.cpp leaves drivers for the CPU alone unless their number is given.
    more = {"VK_ICD_FILENAMES": vulkan_driver(), "GGML_VK_VISIBLE_DEVICES": "0",
            "GGML_VK_DISABLE_F16": "1"} if vulkan else {}
    subprocess.run(["node", HERE + "/llama_truth.js", npm, jobs_file, answers_file,
                    "vulkan" if vulkan else "cpu"], check=True, timeout=1500 if vulkan else 550,
                   env={**os.environ, **more})
    with open(answers_file, encoding="utf-8") as file:
        return json.load(file)


def byte_letters():
    """The letters of a byte-level vocabulary: printable Latin-1 for itself, the others from U+0100
    on."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain},
            **{byte: chr(0x100 + place) for place, byte in enumerate(others)}}


def write_letters(folder, count):
    """Writes a tokenizer whose tokens are letters, for a model with random weights."""
    letters = sorted(byte_letters().values())[:count]
    tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                 "model": {"type": "BPE", "merges": [],
                           "vocab": {letter: number for number, letter in enumerate(letters)}}}
    with open(folder + "/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(tokenizer, file)
    with open(folder + "/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump({"eos_token": letters[0]}, file)
