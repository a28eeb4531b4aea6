#!/usr/bin/env python3
"""gpuctl metrics: CSV, JSON, event files for TensorBoard, drawings.

  metrics.py GPUCTL FAKE_JOB [TEST...]

The event files are read by code of this file, written after the published description of the
format, and by TensorBoard itself in a test of its own, which is told as skipped where TensorBoard is
not installed.
"""
import csv
import datetime
import glob
import io
import json
import math
import os
import shutil
import struct
import sys
import time
import xml.etree.ElementTree

from runs import Skipped, run_tests

TRAIN = """
import json, os, time
with open(os.environ["GPUCTL_METRICS"], "w") as metrics:
    for step in range(1, 41):
        line = {"type": "step", "step": step, "total_steps": 40, "loss": 4 / step ** 0.5,
                "lr": 1e-4 * step, "grad_norm": 1.5, "tokens_per_s": 1000.0 + step,
                "epoch": step / 20}
        if step == 7:
            line["loss"] = float("nan")
        metrics.write(json.dumps(line) + "\\n")
        if step % 20 == 0:
            metrics.write(json.dumps({"type": "eval", "step": step, "loss": 2.5}) + "\\n")
        metrics.flush()
"""
PRINTED = "for i in $(seq 1 5); do echo \"step $i/5 loss 0.$i lr 0.5\"; done"


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def records(data):
    """Checks and returns the records of a TFRecord file."""
    found = []
    while data:
        length, = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8]), "the length's sum"
        body = data[12:12 + length]
        assert len(body) == length, "a torn record"
        assert struct.unpack("<I", data[12 + length:16 + length])[0] == masked(body), "the sum"
        found.append(body)
        data = data[16 + length:]
    return found


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """Yields number and value of each field of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}[key & 7]
            value, at = struct.unpack(form, data[at:at + size])[0], at + size
        yield key >> 3, value


def scalars(path):
    """Returns {tag: [(step, wall time, value)]} of an event file."""
    with open(path, "rb") as file:
        events = records(file.read())
    assert dict(fields(events[0]))[3] == b"brain.Event:2", events[0]
    found = {}
    for event in events[1:]:
        event = dict(fields(event))
        for number, value in fields(event[5]):
            assert number == 1
            value = dict(fields(value))
            found.setdefault(value[1].decode(), []).append((event.get(2, 0), event[1], value[2]))
    return found


def only_event_file(directory):
    found = glob.glob(directory + "/*tfevents*")
    assert len(found) == 1, found
    return found[0]


def train(l, name):
    with open(l.work + "/train.py", "w", encoding="utf-8") as file:
        file.write(TRAIN)
    l.run("launch", "--name", name, "--", sys.executable, "train.py")


def test_event_files(l):
    """Two runs become two directories, with all numbers, steps and times; twice is once."""
    before = time.time()
    train(l, "ev")
    l.run("launch", "--name", "evp", "--", "sh", "-c", PRINTED)
    written = l.json("metrics", "ev", "evp", "--tensorboard", "logs")["files"]
    assert [os.path.dirname(file["path"]) for file in written] == ["logs/ev-1", "logs/evp-1"]
    path = only_event_file(l.work + "/logs/ev-1")
    assert written[0]["bytes"] == os.path.getsize(path)
    found = scalars(path)
    assert set(found) >= {"train/loss", "train/learning_rate", "train/grad_norm", "train/epoch",
                          "train/tokens_per_s", "eval/loss"}, set(found)
    assert [step for step, _, _ in found["train/loss"]] == list(range(1, 41))
    assert all(before - 1 <= when <= time.time() + 1 for _, when, _ in found["train/loss"])
    assert math.isnan(found["train/loss"][6][2]) and found["train/loss"][3][2] == 2.0
    assert [(step, value) for step, _, value in found["eval/loss"]] == [(20, 2.5), (40, 2.5)]
    assert abs(found["train/learning_rate"][39][2] - 4e-3) < 1e-8
    printed = scalars(only_event_file(l.work + "/logs/evp-1"))
    assert [step for step, _, _ in printed["train/loss"]] == [1, 2, 3, 4, 5]
    assert all(before - 1 <= when <= time.time() + 1 for _, when, _ in printed["train/loss"])

    # The same numbers are the same file. A file that only lost its end gets it back in place.
    with open(path, "rb") as file:
        content = file.read()
    inode = os.stat(path).st_ino
    os.truncate(path, len(content) - 7)
    done = l.run("metrics", "ev", "--offline", "--tensorboard", "logs")
    assert b"HINT: tensorboard --logdir logs" in done.stderr, done.stderr
    with open(path, "rb") as file:
        assert file.read() == content and os.stat(path).st_ino == inode
    # Many at once write it once.
    os.truncate(path, len(content) - 100)
    many = [l.start("metrics", "ev", "--offline", "--tensorboard", "logs") for _ in range(6)]
    assert [process.wait(timeout=300) for process in many] == [0] * 6
    with open(path, "rb") as file:
        assert file.read() == content
    # What is no file is replaced, too, and nothing waits for its other end.
    os.remove(path)
    os.mkfifo(path)
    l.run("metrics", "ev", "--offline", "--tensorboard", "logs")
    with open(path, "rb") as file:
        assert file.read() == content
    # One with other content is replaced, and a link is not followed.
    os.remove(path)
    with open(l.work + "/mine", "wb") as file:
        file.write(content[:20])
    os.symlink(l.work + "/mine", path)
    l.run("metrics", "ev", "--offline", "--tensorboard", "logs")
    assert not os.path.islink(path) and os.path.getsize(l.work + "/mine") == 20
    only_event_file(l.work + "/logs/ev-1")


def test_tensorboards_own_reader(l):
    """TensorBoard reads the files, too."""
    try:
        from tensorboard.backend.event_processing import event_accumulator
    except ImportError as why:
        raise Skipped("tensorboard is not installed for %s" % sys.executable) from why
    train(l, "tb")
    l.run("metrics", "tb", "--tensorboard", "tb-logs")
    reader = event_accumulator.EventAccumulator(l.work + "/tb-logs/tb-1")
    reader.Reload()
    losses = reader.Scalars("train/loss")
    assert [event.step for event in losses] == list(range(1, 41)) and losses[3].value == 2.0


def test_csv_and_json(l):
    """Every number is in a column of its own, and what nobody measured is empty."""
    train(l, "csv")
    l.run("launch", "--name", "csvp", "--", "sh", "-c", PRINTED)
    text = l.run("metrics", "csv", "csvp", "csv-1", "--csv").stdout.decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert text.splitlines()[0].startswith("run,step,kind,loss,time,epoch,learning_rate,")
    mine = [row for row in rows if row["run"] == "csv-1"]
    assert len(mine) == 42, len(mine)  # a run that is named twice comes once
    assert mine[6]["loss"] == "NaN" and mine[3]["loss"] == "2.0", mine[3]
    assert (mine[9]["epoch"], mine[9]["grad_norm"], mine[9]["tokens_per_s"]) == (
        "0.5", "1.5", "1010.0"), mine[9]
    assert abs(float(mine[9]["learning_rate"]) - 1e-3) < 1e-12
    when = datetime.datetime.fromisoformat(mine[9]["time"].replace("Z", "+00:00")).timestamp()
    assert abs(when - time.time()) < 60, mine[9]
    evaluations = [row for row in mine if row["kind"] == "eval"]
    assert [row["step"] for row in evaluations] == ["20", "40"]
    assert all(row["loss"] == "2.5" and row["learning_rate"] == "" for row in evaluations)
    printed = [row for row in rows if row["run"] == "csvp-1"]
    assert len(printed) == 5 and all(row["time"] == "" for row in printed), printed
    assert printed[2]["learning_rate"] == "0.5", printed
    one, two = l.json("metrics", "csv", "csvp")["runs"]
    assert len(one["losses"]) == 40 and len(one["eval_losses"]) == 2
    assert one["points"][6]["loss"] == "NaN" and one["points"][19]["eval_loss"] == 2.5
    assert set(one["points"][0]) - {"gpu_percent"} == {
        "step", "time", "epoch", "loss", "learning_rate", "grad_norm", "tokens_per_s"}
    assert two["points"][0] == {"step": 1, "loss": 0.1, "learning_rate": 0.5}, two["points"][0]


def test_own_numbers_are_in_csv_and_json(l):
    lines = [{"step": 1, "loss": 2.0, "accuracy": 0.25}, {"step": 2, "loss": 1.5},
             {"step": 2, "eval_loss": 1.75, "eval": {"f1": 0.5}}, {"step": 3, "accuracy": 0.75}]
    l.run("launch", "--no-workdir", "--name", "own", "--", "bash", "-c",
          "".join("echo '%s' > $GPUCTL_METRICS\n" % json.dumps(line) for line in lines))
    text = l.run("metrics", "own", "--csv").stdout.decode()
    rows = [(row["step"], row["kind"], row["accuracy"], row["eval/f1"])
            for row in csv.DictReader(io.StringIO(text))]
    assert rows == [("1", "train", "0.25", ""), ("2", "train", "", "0.5"), ("2", "eval", "", ""),
                    ("3", "own", "0.75", "")], text
    shown = l.run("metrics", "own", "--metric", "accuracy", "--plot", "own.svg").stdout
    assert b"own.svg" in shown
    with open(os.path.join(l.work, "own.svg"), encoding="utf-8") as file:
        assert ">accuracy<" in file.read()
    table = l.run("metrics", "own", "--metric", "accuracy").stdout.decode().splitlines()
    assert table[0].split()[:4] == ["RUN", "STEP", "accuracy", "LOSS"], table
    assert table[1].split()[2] == "0.75" and "accuracy" in table[2:], table
    said = l.run("metrics", "own", "--metric", "acuracy").stderr
    assert b'own-1 has no value of acuracy with a step (did you mean "accuracy"?)' in said, said
    assert b"HINT: --metric names one of the numbers that it has: loss, eval_loss, accuracy, eval/f1" in said, said
    points = l.json("metrics", "own")["runs"][0]["points"]
    assert [(p["step"], p.get("own")) for p in points] == [
        (1, {"accuracy": 0.25}), (2, {"eval/f1": 0.5}), (3, {"accuracy": 0.75})], points


def mirror_of(l, name):
    run = next(run for run in l.json("ps", "-a")["runs"] if run["name"] == name)
    return os.path.join(l.env["GPUCTL_STATE_DIR"], "runs", run["run_id"])


def add_telemetry(l, name, line):
    """Puts telemetry of a machine with GPUs into the run's copy, from before its first step on."""
    folder = mirror_of(l, name) + "/telemetry"
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/00000000000000000000", "w", encoding="utf-8") as file:
        for i in range(-20, 200):
            file.write(json.dumps({"time_ms": int(time.time() * 1000) - 8000 + 50 * i, **line}) + "\n")


def test_gpus(l):
    """Utilization joins the steps by time: in CSV, in event files and below the curve."""
    train(l, "gpus")
    gpu = {"utilization_percent": 80, "memory_used_bytes": 2e9, "memory_total_bytes": 8e9,
           "power_w": 300, "temperature_c": 60}
    add_telemetry(l, "gpus-1", {"gpus": [gpu, {"utilization_percent": 40}]})
    text = l.run("metrics", "gpus", "--offline", "--csv").stdout.decode()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["kind"] == "train"]
    assert {row["gpu_percent"] for row in rows} == {"60.0"}, rows[0]
    l.run("metrics", "gpus", "--offline", "--tensorboard", "gpu-logs", "--plot", "a.svg")
    found = scalars(only_event_file(l.work + "/gpu-logs/gpus-1"))
    assert {value for _, _, value in found["gpu0/utilization_percent"]} == {80.0}
    assert {value for _, _, value in found["gpu1/utilization_percent"]} == {40.0}
    assert {value for _, _, value in found["gpu0/memory_used_gb"]} == {2.0}
    assert "gpu1/memory_used_gb" not in found
    with open(l.work + "/a.svg", encoding="utf-8") as file:
        assert ">GPU utilization, %</text>" in file.read()


def test_plot(l):
    """The drawing is well-formed, names every run, and replaces an older one."""
    train(l, "pa")
    train(l, "pb")
    written = l.json("metrics", "pa", "pb", "--plot", "curve.svg")["files"]
    assert [(file["run_id"], file["path"]) for file in written] == [(None, "curve.svg")]
    root = xml.etree.ElementTree.parse(l.work + "/curve.svg").getroot()
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for wanted in ("pa-1", "pb-1", "loss", "learning rate", "tokens per second", "step"):
        assert wanted in texts, (wanted, texts)
    assert "GPU utilization, %" not in texts
    l.run("metrics", "pa", "--plot", "curve.svg", "--offline")
    with open(l.work + "/curve.svg", encoding="utf-8") as file:
        assert "pb-1" not in file.read()


def test_plot_as_png(l):
    """A PNG comes from the SVG by librsvg's own program; without it, the way out is named."""
    train(l, "png")
    no_tools = l.dir + "/no-tools"
    os.makedirs(no_tools, exist_ok=True)
    done = l.run("metrics", "png", "--plot", "a.png", code=2, PATH=no_tools)
    assert b"a PNG needs rsvg-convert" in done.stderr and b"HINT: install librsvg2-bin" in done.stderr
    if shutil.which("rsvg-convert") is None:
        raise Skipped("rsvg-convert is not installed: no PNG was drawn")
    written = l.json("metrics", "png", "--offline", "--plot", "a.png")["files"]
    with open(l.work + "/a.png", "rb") as file:
        png = file.read()
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and len(png) == written[0]["bytes"], png[:20]
    width, height = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
    assert width > 1000 and height > 600, (width, height)
    # A converter that fails leaves the older file as it is.
    broken = l.dir + "/broken/rsvg-convert"
    os.makedirs(os.path.dirname(broken), exist_ok=True)
    with open(broken, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\nexit 3\n")
    os.chmod(broken, 0o755)
    done = l.run("metrics", "png", "--offline", "--plot", "a.png", code=1,
                 PATH=os.path.dirname(broken) + ":" + l.env["PATH"])
    assert b"draw a PNG with rsvg-convert: ended with code 3" in done.stderr, done
    with open(l.work + "/a.png", "rb") as file:
        assert file.read() == png


def test_errors(l):
    """What cannot be written is told, with the way out, and nothing else happens."""
    l.run("launch", "--name", "mute", "--", "true")
    there = os.listdir(l.work)
    for args, words in (
            (["--plot", "a.pdf"], ["SVG and PNG files", "HINT: name it FILE.svg"]),
            (["--plot", ".svg"], ["SVG and PNG files"]), (["--plot", ""], ["SVG and PNG files"]),
            (["--plot", ".png"], ["SVG and PNG files"]),
            (["--tensorboard", ""], ["names no directory"]),
            (["--csv", "--plot", "a.svg"], ["--csv prints", "HINT:"])):
        done = l.run("metrics", "mute", *args, code=2)
        assert all(word in done.stderr.decode() for word in words), done.stderr
    for args in (["--plot", "a.svg"], ["--tensorboard", "some-logs"]):
        done = l.run("metrics", "mute", *args, code=1)
        assert b"no run has numbers yet" in done.stderr and b"HINT: gpuctl logs mute" in done.stderr
        assert os.listdir(l.work) == there, os.listdir(l.work)
    train(l, "some")
    with open(l.work + "/file", "w", encoding="utf-8"):
        pass
    for args in (["--plot", "nowhere/a.svg"], ["--tensorboard", "file"], ["--tensorboard", "/proc/x"]):
        done = l.run("metrics", "some", "--offline", *args, code=1)
        assert args[1].encode() in done.stderr, (args, done.stderr)
    # One of two has numbers: it is written, and the other one is named.
    done = l.run("metrics", "mute", "some", "--offline", "--tensorboard", "some-logs")
    assert b"mute-1 has no numbers yet" in done.stderr and os.listdir(l.work + "/some-logs") == ["some-1"]


# It needs what is not everywhere.
BY_NAME = ("test_tensorboards_own_reader",)

if __name__ == "__main__":
    run_tests(globals(), by_name=BY_NAME)
