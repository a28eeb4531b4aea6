#!/usr/bin/env python3
"""Each fault at each call of each provider, through the real gpuctl: nothing of ours still bills,
nothing is rented twice, and an unknown state is never shown as nothing.

  rent_fault_matrix_test.py GPUCTL GPUCTL_CLOUDSIM [--every N] [--only PART]

There are two kinds of cells. "wire": machines never come up, so that launch rents, gives back and
ends (then instances, reap); every fault, once and in a row. "run": real nodes, where the run must
finish in spite of the fault. --every N takes each N-th, starting elsewhere for each provider.
"""
import functools
import sys

from rent_cells import PROVIDERS, QUANTUM_S, Cell, check, run_cells, which_cells

ANSWERS = ("hang", "timeout", "torn", "empty", "html", "wrong_types", "wrong_shape", "error_200",
           "500", "502", "504", "500_after", "502_after", "reset", "reset_after", "429", "410")
REFUSALS = ("400", "401", "403", "404", "409")
OF_CREATE = ("no_funds", "out_of_stock", "offer_gone", "quota", "refused_but_made", "boot_never")
ROUTES = ("create", "list", "describe", "terminate", "offers", "keys")
MANY = 20  # longer than a client waits
# Exit codes of launch: finished, no capacity, provider, credentials, a reported leak, timeout.
ENDED = (0, 1, 117, 120, 121, 122, 124)


def routes_of(provider):
    if provider == "huggingface":  # the path of every request has the account
        return tuple("account" if route == "keys" else route for route in ROUTES)
    return tuple(route for route in ROUTES if route != "keys" or provider != "runpod")


def wire_faults(provider):
    for route in routes_of(provider):
        for fault in ANSWERS + REFUSALS:
            yield route, fault, 1, {}
        for fault in ("torn", "html", "wrong_types", "error_200", "500", "reset", "410"):
            yield route, fault, MANY, {}
        yield route, "429", 4, {"retry_after": 3}
        yield route, "429", MANY, {}
    for fault in OF_CREATE:
        yield "create", fault, 1, {}
    yield "terminate", "ended_lag", 1, {"lists": 3}
    yield "terminate", "terminate_ignored", 1, {}
    yield "terminate", "terminate_ignored", 3, {}
    yield "create", "no_endpoint", 1, {}


def check_known(cell, instances):
    """Expects every live machine in the answer, or the answer says what it does not know."""
    shown = {i["instance_id"] for i in instances["instances"]}
    doubtful = {lease["label"] for lease in instances["unsettled"]}
    unknown = {market["provider"] for market in instances["unknown"]}
    for book in cell.alive():
        check(book["id"] in shown or book["label"] in doubtful or cell.provider in unknown,
              f"{book['id']} bills and instances shows none: {instances}")


def check_books(cell, ended_at_once=False, may_end_unseen=False):
    """Expects nothing alive at the end, and the same in ledger and books. A machine counts as never
    rented if it was refused, made anyway and ended before the answer was sent; and where
    `may_end_unseen`, if its market ended it before a listing told of it."""
    check(not cell.alive(), f"still alive: {[b['id'] for b in cell.alive()]}")
    leases = {lease["label"]: lease for lease in cell.leases()}
    labels = [b["label"] for b in cell.books()]
    for book in cell.books():
        label = book["label"]
        check(label in leases, f"the ledger does not know {label}")
        unseen = ended_at_once or (may_end_unseen and book["ended_by"].startswith("simulator"))
        check(leases[label]["state"] == "released" or unseen, f"{label} is {leases[label]['state']}")
    for label, lease in leases.items():
        check(lease["state"] in ("released", "not_created"), f"{label} is {lease['state']}")
        check(label in labels or lease["state"] == "not_created", f"{label} never was: {lease}")


def check_no_doubles(cell):
    """Expects no two labels at the same time: a launch rents the next machine only after it knows
    that the last one is gone, or after two minutes of listings did not show it."""
    books = sorted(cell.books(), key=lambda b: b["created_ms"])
    for first, second in zip(books, books[1:]):
        end = float("inf") if first["alive"] else first["ended_ms"]
        check(first["label"] == second["label"] or end <= second["created_ms"],
              f"{first['id']} and {second['id']} at the same time")


def wire_cell(gpuctl, program, provider, route, fault, times, more, flags=()):
    slow = fault in ("no_endpoint", "boot_never")  # until patience ends, ten minutes and more
    with Cell(gpuctl, program, provider, 200 if slow else 60) as cell:
        try:
            if not slow:
                cell.sim.fault(provider, "create", "boot_fails", times=-1)
            if route == "list":  # launch lists when a create's answer was lost
                cell.sim.fault(provider, "create", "reset_after")
            cell.sim.fault(provider, route, fault, times=times, **more)
            code, _, err = cell.run(*cell.launch_arguments("one", *flags))
            check(code in ENDED, f"launch exited with {code}: {err}")
            check(len(cell.alive()) <= 1 or fault == "refused_but_made", "two are alive")
            check_known(cell, cell.json("instances", codes=(0, 117, 120, 122, 124)))
            check_no_doubles(cell)
            cell.sim.clear_faults()
            code, _, err = cell.run("reap", "-y")
            check(code == 0, f"reap exited with {code}: {err}")
            # A job of Hugging Face that does not start leaves the list by itself.
            check_books(cell, fault == "refused_but_made",
                        may_end_unseen=provider == "huggingface" and route == "list")
            shown = cell.json("instances")
            check(not any(shown[k] for k in ("instances", "unsettled", "unknown")), f"{shown}")
        except Exception:
            print(cell.story(), flush=True)
            raise


# Runpod's spot machines are rented by another request, which is settled in the same way.
SPOT_CREATE = ("timeout", "torn", "html", "wrong_shape", "500_after", "reset_after")
# The fault is transient, so the run finishes.
RUN_LAUNCH = (("create", "timeout"), ("create", "torn"), ("create", "429"), ("describe", "500"),
              ("describe", "html"), ("offers", "502"))
RUN_LISTS = (("create", "500_after"), ("create", "reset_after"))  # and the list lags
RUN_DOWN = (("terminate", "timeout"), ("terminate", "500"), ("terminate", "terminate_ignored"),
            ("terminate", "error_200"), ("describe", "torn"), ("terminate", "ended_lag"))


def check_invoice(cell, down):
    """Expects ledger and bill to agree within one billing quantum per lease and 0.0001 USD of
    rounding."""
    for lease in down["instances"]:
        book = cell.sim.book(lease["instance_id"])
        slack = book_quantum(cell.provider) * lease["usd_per_hour"] / 3600 + 1e-6
        low, high = lease["spent_low_usd"], lease["spent_high_usd"]
        check(low - slack <= book["billed_usd"] <= high + slack,
              f"the bill is {book['billed_usd']}, the ledger says {low} to {high}")


def book_quantum(provider):
    return QUANTUM_S.get(provider, 1)


def run_cell(gpuctl, program, provider, launch_fault, lag, down_fault):
    with Cell(gpuctl, program, provider, 5, nodes=True) as cell:
        try:
            if lag:
                cell.sim.fault(provider, "create", "list_lag", lists=2)
            if launch_fault:
                cell.sim.fault(provider, *launch_fault)
            code, _, err = cell.run(*cell.launch_arguments())
            check(code == 0, f"launch exited with {code}: {err}")
            alive = cell.alive()
            check(len(alive) == 1, f"{len(alive)} are alive")
            shown = cell.json("instances")
            check([(i["instance_id"], i["whose"]) for i in shown["instances"]] ==
                  [(alive[0]["id"], "ours")], f"{shown}")
            if down_fault:
                cell.sim.fault(provider, *down_fault)
            down = cell.json("down", "one", "-y")
            check_books(cell)
            check_no_doubles(cell)
            check_invoice(cell, down)
        except Exception:
            print(cell.story(), flush=True)
            raise


def main():
    arguments = sys.argv[1:]
    arguments, only, every = which_cells(arguments)
    gpuctl, program = arguments
    wire, run = {}, {}
    for offset, provider in enumerate(PROVIDERS):
        for number, (route, fault, times, more) in enumerate(wire_faults(provider)):
            kept = (number + offset) % every == 0
            if kept:
                name = f"wire {provider} {route} {fault} x{times} {more or ''}".strip()
                wire[name] = functools.partial(wire_cell, gpuctl, program, provider, route, fault,
                                               times, more)
        if provider == "runpod":
            for fault in SPOT_CREATE:
                wire[f"wire runpod spot create {fault}"] = functools.partial(
                    wire_cell, gpuctl, program, provider, "create", fault, 1, {}, ("--spot",))
        launches = [(f, False) for f in RUN_LAUNCH] + [(f, True) for f in RUN_LISTS]
        for number in range(max(len(launches), len(RUN_DOWN))):
            launch, lag = launches[number % len(launches)]
            down = RUN_DOWN[number % len(RUN_DOWN)]
            if number % every == offset % every:
                run[f"run {provider} {' '.join(launch)}{' list_lag' if lag else ''}, "
                    f"{' '.join(down)}"] = functools.partial(
                        run_cell, gpuctl, program, provider, launch, lag, down)
    wire = {n: c for n, c in wire.items() if only in n}
    run = {n: c for n, c in run.items() if only in n}
    failed = (run_cells(wire, 8) if wire else 0) + (run_cells(run, 4) if run else 0)
    sys.exit(1 if failed else 0)


main()
