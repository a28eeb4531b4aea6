#!/usr/bin/env python3
"""gpuctl is killed at every step of launch and down. Then `gpuctl reap` ends exactly our unwanted
machines. Every account also has an instance of another gpuctl and one of somebody else.

  rent_kill_matrix_test.py GPUCTL GPUCTL_CLOUDSIM [--every N] [--only PART]

Steps are HTTP requests and changes of the ledger. The simulator holds a request, and gpuctl is
killed before its execution, after it, or before a request that is executed when everybody has
given up. At the ledger it is killed before and after each change.
"""
import functools
import signal
import sys

from rent_cells import PROVIDERS, Cell, check, run_cells, which_cells
from simulator import eventually, runpod_body

REQUESTS = {"launch": 8, "down": 7}  # into the second machine; more than there are
WRITES = {"launch": 16, "down": 12}  # the same
NODE_WRITES = range(5, 20)           # earlier ones occur without a node, too; more than there are
KILLED = {}


def note(killed, step, number):
    if killed:
        KILLED.setdefault(step, []).append(number)


def rent_foreign(cell):
    """Rents an instance of another gpuctl and one of nobody's gpuctl. Returns their ids."""
    sim, ids = cell.sim, []
    for number, name in enumerate(("gpuctl-deadbeef-0123456789ab", "somebody-else")):
        if cell.provider == "runpod":
            made = sim.call("runpod", "POST", "/v2/pods", runpod_body(
                name=name)).json
            check("id" in made, f"{made}")
            ids.append(made["id"])
        elif cell.provider == "lambda":
            sim.call("lambda", "POST", "/api/v1/ssh-keys", {"name": "k", "public_key": "ssh-x y"})
            made = sim.call("lambda", "POST", "/api/v1/instance-operations/launch", {
                "region_name": "us-west-1", "instance_type_name": "gpu_1x_a10",
                "ssh_key_names": ["k"], "name": name}).json
            check("data" in made, f"{made}")
            ids.append(made["data"]["instance_ids"][0])
        elif cell.provider == "digitalocean":
            made = sim.call("digitalocean", "POST", "/v2/droplets", {
                "region": "nyc2", "size": "gpu-h100x1-80gb", "image": "gpu-h100x1-base",
                "name": name}).json
            check("droplet" in made, f"{made}")
            ids.append(str(made["droplet"]["id"]))
        elif cell.provider == "shadeform":
            made = sim.call("shadeform", "POST", "/v1/instances/create", {
                "cloud": "massedcompute", "region": "us-central-2", "shade_instance_type": "H100",
                "shade_cloud": True, "name": name}).json
            check("id" in made, f"{made}")
            ids.append(made["id"])
        elif cell.provider == "huggingface":
            owner = sim.call("huggingface", "GET", "/api/whoami-v2").json["name"]
            made = sim.call("huggingface", "POST", "/api/jobs/" + owner, {
                "flavor": "a10g-small", "dockerImage": "i", "timeoutSeconds": 9999999,
                "labels": {"name": name}}).json
            check("id" in made, f"{made}")
            ids.append(made["id"])
        else:
            made = sim.call("vast", "PUT", f"/api/v0/asks/{9100004 + number}/", {
                "image": "i", "disk": 20, "label": name}).json
            check("new_contract" in made, f"{made}")
            ids.append(str(made["new_contract"]))
    return ids


def ours(cell, foreign):
    return [b for b in cell.books() if b["id"] not in foreign]


def check_end(cell, foreign, states=("a",)):
    """Expects that nothing of ours bills, that those of others do, and that ledgers and books
    agree."""
    leases = {}
    for state in states:
        leases.update({lease["label"]: lease for lease in cell.leases(state)})
    for book in cell.books():
        if book["id"] in foreign:
            check(book["alive"], f"{book['id']} of somebody else was ended by {book['ended_by']}")
            continue
        check(not book["alive"], f"{book['id']} bills on")
        check(book["label"] in leases, f"the ledger does not know {book['label']}")
        check(leases[book["label"]]["state"] == "released", f"{leases[book['label']]}")
    for lease in leases.values():
        check(lease["state"] in ("released", "not_created"), f"{lease}")
    for state in states:
        check_costs(cell, state)


def check_costs(cell, state):
    """Expects released machines to cost between low and high, within one quantum."""
    for lease in cell.leases(state):
        if lease["state"] != "released":
            continue
        book = cell.sim.book(lease["instance_id"])
        rate, quantum = lease["price_usd_per_hour"] / 3600, lease["quantum_s"]
        begins = [t for t in (lease["intended_ms"], lease["created_ms"], lease["rented_ms"]) if t]
        if cell.provider == "huggingface":
            # A job that still waits costs nothing, and the ledger counts that time.
            begins.append(book["started_ms"] or lease["ended_after_ms"])
        low = (lease["ended_after_ms"] - max(begins)) / 1000 * rate
        high = (lease["ended_ms"] - min(begins)) / 1000 * rate
        slack = quantum * rate + 1e-6
        check(low - slack <= book["billed_usd"] <= high + slack,
              f"{book['id']} cost {book['billed_usd']}, the ledger says {low} to {high}")


def reap(cell, codes=(0,), state="a"):
    for _ in range(4):  # on a busy machine an answer may take longer than this clock allows
        code, _, err = cell.run("reap", "-y", state=state)
        if code != 122:
            break
    check(code in codes, f"reap exited with {code}: {err}")


def kill(cell, process):
    process.send_signal(signal.SIGKILL)
    cell.finish(process)


def start_held(cell, arguments, number, phase):
    """Starts a process held at its request `number`. Returns None when it ended before."""
    hold = cell.sim.hold(service=cell.provider, route="*", nth_request=number, phase=phase)
    process = cell.start(*arguments)

    def reached():
        try:
            cell.sim.wait_hold(hold, 0.05)
            return "held"
        except AssertionError:
            return "ended" if process.poll() is not None else None
    if eventually(reached, f"request {number}", 240) == "held":
        return process, hold
    cell.finish(process)
    return None, hold


def rent_one(cell):
    """Rents a machine whose launch is killed while it comes up, for down."""
    hold = cell.sim.hold(service=cell.provider, route="describe", nth_request=2, phase="after")
    process = cell.start(*cell.launch_arguments())
    cell.sim.wait_hold(hold, 60)
    kill(cell, process)
    cell.sim.release(hold)


def told(function):
    @functools.wraps(function)
    def cell_of(gpuctl, program, provider, speed, nodes, *more):
        with Cell(gpuctl, program, provider, speed, nodes) as cell:
            try:
                function(cell, *more)
            except Exception:
                print(cell.story(), flush=True)
                raise
    return cell_of


@told
def at_request(cell, verb, number, how):
    foreign = rent_foreign(cell)
    arguments = cell.launch_arguments() if verb == "launch" else ("down", "--all", "-y")
    if verb == "down":
        rent_one(cell)
    else:  # each is given back, and the next one tried
        cell.sim.fault(cell.provider, "create", "boot_fails", times=-1)
    process, hold = start_held(cell, arguments, number, "after" if how == "after" else "before")
    if process is not None:
        kill(cell, process)
    check(verb == "launch" or number < REQUESTS[verb] or process is None,
          "there are more requests than are tried")
    note(process is not None, f"{cell.provider} {verb}, requests {how}", number)
    if how == "late":
        reap(cell, (0, 117, 124))  # it can only know what is there already
        cell.sim.release(hold)
        eventually(lambda: all(r["status"] or r["fault"] for r in cell.sim.requests(cell.provider)),
                   "the late request is executed")
    else:
        cell.sim.release(hold, drop=how == "before")
    reap(cell)
    check_end(cell, foreign)


@told
def at_write(cell, verb, number):
    foreign = rent_foreign(cell)
    arguments = cell.launch_arguments() if verb == "launch" else ("down", "--all", "-y")
    if verb == "down":
        rent_one(cell)
    else:
        cell.sim.fault(cell.provider, "create", "boot_fails", times=-1)
    code, _, _ = cell.run_killed_at_write(*arguments, number=number)
    check(code in (-signal.SIGKILL, 0, 121), f"{verb} exited with {code}")
    check(verb == "launch" or number < WRITES[verb] or code != -signal.SIGKILL,
          "there are more writes than are tried")
    note(code == -signal.SIGKILL, f"{cell.provider} {verb}, writes", number)
    reap(cell)
    check_end(cell, foreign)


@told
def at_node_write(cell, number):
    """The launch goes on to its end. A machine claimed by its node is wanted until down."""
    foreign = rent_foreign(cell)
    code, _, err = cell.run_killed_at_write(*cell.launch_arguments(), number=number)
    check(code in (-signal.SIGKILL, 0), f"launch exited with {code}: {err}")
    check(number < NODE_WRITES[-1] or code == 0, "there are more writes than are tried")
    note(code != 0, f"{cell.provider} launch to its end, writes", number)
    claimed = [lease["instance_id"] for lease in cell.leases() if lease["claimed_ms"]]
    reap(cell)
    left = [b["id"] for b in ours(cell, foreign) if b["alive"]]
    check(left == claimed, f"{left} is left, {claimed} was taken over")
    code, _, err = cell.run("down", "--all", "-y")
    check(code == 0, f"down exited with {code}: {err}")
    check_end(cell, foreign)


@told
def beside(cell, number):
    """Reaps in the middle of a launch, which then finishes, and of a launch of another state
    directory."""
    foreign = rent_foreign(cell)
    process, hold = start_held(cell, cell.launch_arguments(), number, "before")
    if process is None:
        number = 0
    else:
        reap(cell, (0, 124))
        reap(cell, (0, 120), state="b")
        cell.sim.release(hold)
        code, _, err = cell.finish(process)
        check(code == 0, f"launch exited with {code}: {err}")
    alive = [b for b in ours(cell, foreign) if b["alive"]]
    check(len(alive) == 1, f"{len(alive)} are alive")
    reap(cell)
    check([b for b in ours(cell, foreign) if b["alive"]] != [], "reap ended what is wanted")
    code, _, err = cell.run("down", "--all", "-y")
    check(code == 0, f"down exited with {code}: {err}")
    check_end(cell, foreign)


@told
def two_states(cell):
    """Two laptops with one account: each ends only its own machines."""
    foreign = rent_foreign(cell)
    mine = []
    for state in ("a", "b"):
        hold = cell.sim.hold(service=cell.provider, route="describe", nth_request=2, phase="after")
        process = cell.start(*cell.launch_arguments(state), state=state)
        cell.sim.wait_hold(hold, 60)
        kill(cell, process)
        cell.sim.release(hold)
        mine.append([b["id"] for b in ours(cell, foreign) if b["id"] not in mine][-1])
    reap(cell, state="a")
    alive = [b["id"] for b in ours(cell, foreign) if b["alive"]]
    check(alive == [mine[1]], f"{alive} is left, {mine} were rented")
    shown = cell.json("instances", state="a")
    check(sorted((i["instance_id"], i["whose"]) for i in shown["instances"]) ==
          sorted([(mine[1], "other-owner"), (foreign[0], "other-owner"),
                  (foreign[1], "not-gpuctl")]), f"{shown}")
    reap(cell, state="b")
    check_end(cell, foreign, ("a", "b"))


def main():
    arguments = sys.argv[1:]
    arguments, only, every = which_cells(arguments)
    quick, nodes = {}, {}
    for provider in PROVIDERS:
        for verb in ("launch", "down"):
            for number in range(1, REQUESTS[verb] + 1):
                for how in ("before", "after", "late"):
                    quick[f"{verb} {provider} request {number} {how}"] = functools.partial(
                        at_request, *arguments, provider, 40, False, verb, number, how)
            for number in range(1, WRITES[verb] + 1):
                quick[f"{verb} {provider} write {number}"] = functools.partial(
                    at_write, *arguments, provider, 40, False, verb, number)
        quick[f"two states {provider}"] = functools.partial(
            two_states, *arguments, provider, 40, False)
        for number in NODE_WRITES:
            nodes[f"node {provider} write {number}"] = functools.partial(
                at_node_write, *arguments, provider, 5, True, number)
        for number in (1, 2, 3, 4, 6):
            nodes[f"beside {provider} request {number}"] = functools.partial(
                beside, *arguments, provider, 5, True, number)
    quick, nodes = ({name: cells[name] for name in [n for n in cells if only in n][::every]}
                    for cells in (quick, nodes))
    failed = (run_cells(quick, 10) if quick else 0) + (run_cells(nodes, 5) if nodes else 0)
    for step, numbers in sorted(KILLED.items()):
        print(f"killed at {step}: {' '.join(map(str, sorted(numbers)))}")
    sys.exit(1 if failed else 0)


main()
