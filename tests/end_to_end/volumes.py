#!/usr/bin/env python3
"""Volumes that outlive machines: the real gpuctl, agent and ssh, at simulated markets.

  volumes.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import json
import time

from rent_world import run_tests

GPU = {"runpod": "RTX-4090", "lambda": "A10", "vast": "RTX-4090"}
# None of them is at the place of the cheapest machine.
PLACE = {"runpod": "US-TX-3", "lambda": "us-west-1", "vast": 100002}
PATH = {"runpod": "/workspace", "lambda": "/lambda/nfs/sets", "vast": "/workspace"}


def make_volume(w, service):
    """Makes a volume by the provider's own route. Returns its id and its name."""
    if service == "runpod":
        made = w.sim.call("runpod", "POST", "/v2/network-volumes", {
            "name": "sets", "size": 50, "dataCenter": PLACE["runpod"]}).json
        return made["id"], "sets"
    if service == "lambda":
        made = w.sim.call("lambda", "POST", "/api/v1/filesystems", {
            "name": "sets", "region": PLACE["lambda"]}).json["data"]
        return made["id"], "sets"
    offers = w.sim.call("vast", "POST", "/api/v0/volumes/search/", {}).json["offers"]
    (offer,) = [o for o in offers if o["machine_id"] == PLACE["vast"]]
    name = w.sim.call("vast", "PUT", "/api/v0/volumes/",
                      {"id": offer["id"], "size": 50}).json["volume_name"]
    return name[2:], name


def check_place(w, service):
    """Expects that the last rented machine is at the volume's place."""
    book = w.books()[-1]
    if service == "vast":
        assert book["product"] == "9100002", book
    else:
        assert book["region"] == PLACE[service], book


def check_volume(w, service):
    volume, name = make_volume(w, service)
    (listed,) = w.json("volumes")["volumes"]
    assert (listed["provider"], listed["volume"], listed["name"]) == (service, volume, name), listed
    assert listed["mount_path"] == PATH[service] and listed["usd_per_month"] is not None, listed

    wish = ["--gpu", GPU[service], "--volume", name]
    plan = w.rent(*wish, "--dry-run", "--", "true").stdout.decode()
    assert "volume    %s (" % name in plan and " at %s\n" % PATH[service] in plan, plan
    assert "stays when the machine goes" in plan and "a month by itself" in plan, plan
    offers = w.json("offers", "--explain", *wish)
    assert offers["offers"] and offers["left_out"], offers
    assert {o["provider"] for o in offers["offers"]} == {service}, offers
    others = [o for o in offers["left_out"] if o["gpu"] == GPU[service] and o["gpu_count"] == 1]
    assert others and all(o["left_out_because"].startswith("cannot mount the volume " + name)
                          for o in others), others

    w.rent(*wish, "--name", "writer-1", "--", "bash", "-c",
           'mkdir "$GPUCTL_VOLUME/kept" && echo "$GPUCTL_ATTEMPT of writer" '
           '> "$GPUCTL_VOLUME/kept/note"')
    check_place(w, service)
    w.run("down", "-y", "writer-1")
    # By its id, and at another path.
    path = PATH[service] + "/deeper"
    done = w.rent("--gpu", GPU[service], "--volume", "%s:%s" % (volume, path), "--name", "reader-1",
                  "--", "bash", "-c", 'echo "$GPUCTL_VOLUME"; cat "$GPUCTL_VOLUME/kept/note"')
    assert done.stdout.endswith((path + "\n1 of writer\n").encode()), done
    assert b"the volume at " in done.stderr and b" free; " in done.stderr, done
    check_place(w, service)
    if service != "runpod":
        assert [v["in_use"] for v in w.json("volumes")["volumes"]] == [True]
    if service == "vast":
        # No other machine has it.
        done = w.rent(*wish, "--", "true", code=121)
        assert b"machine 100002" in done.stderr and b"is (in use now)" in done.stderr, done
    w.run("down", "-y", "reader-1")
    # It exists without a machine, and bills.
    found = w.json("instances")
    assert found["instances"] == [] and [v["volume"] for v in found["volumes"]] == [volume], found
    assert found["unknown_volumes"] == [], found
    told = w.run("instances")
    assert name.encode() in told.stdout and b"no machine bills" in told.stderr, told
    (stored,) = w.sim.books()["volumes"]
    assert stored["alive"] and stored["usd_per_hour"] > 0, stored


def test_a_volume_at_runpod(w):
    check_volume(w, "runpod")


def test_a_volume_at_lambda(w):
    check_volume(w, "lambda")


def test_a_volume_at_vast(w):
    check_volume(w, "vast")


def test_what_cannot_be_mounted_is_refused_before_anything_is_rented(w):
    def refused(code, *args, **env):
        done = w.rent(*args, "--json", "--", "true", code=code, **env)
        error = json.loads(done.stdout)["error"]
        assert w.creates() == [] and w.books() == [], (w.creates(), error)
        return error["message"]

    gpu = ["--gpu", "RTX-4090"]
    assert "there are no volumes" in refused(2, *gpu, "--volume", "sets")
    make_volume(w, "runpod")
    make_volume(w, "vast")
    message = refused(2, *gpu, "--volume", "set")
    assert 'did you mean "sets"' in message and "at runpod, US-TX-3, 50.0 GB)" in message, message
    assert "at vast, machine 100002" in message, message
    make_volume(w, "lambda")
    assert "may be sets (" in refused(2, *gpu, "--volume", "sets")
    # Its place has no such GPU.
    message = refused(121, "--gpu", "H200", "--provider", "lambda", "--volume", "sets")
    assert "where the volume sets (" in message and "at lambda, us-west-1" in message, message
    message = refused(2, "--gpu", "A10", "--provider", "lambda", "--volume", "sets:/workspace")
    assert "only below /home, /lambda/nfs, /data" in message, message
    # A market that cannot be asked may have it.
    w.sim.fault("vast", "volumes", "401", times=-1)
    message = refused(120, *gpu, "--volume", "unheard-of")
    assert "at no other provider" in message and "Vast's volumes" in message, message
    # The user's own machine has none.
    assert "resources.volume is for rented machines" in refused(
        2, "--provider", "local", "--volume", "sets")


def test_a_machine_without_its_volume_is_given_back(w):
    _, name = make_volume(w, "vast")
    w.sim.fault("vast", "create", "volume_missing")
    # The wait for a late mount is short, because time runs faster for gpuctl.
    clock = "5@%d@%d" % (time.time() * 1000, time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
    done = w.rent("--gpu", "RTX-4090", "--volume", name, "--", "true", code=121,
                  GPUCTL_TEST_CLOCK=clock)
    assert b"no volume is mounted at /workspace" in done.stderr, done
    assert w.alive() == [] and w.excluded() == ["vast/100002"], (w.books(), w.excluded())


if __name__ == "__main__":
    run_tests(dict(globals()))
