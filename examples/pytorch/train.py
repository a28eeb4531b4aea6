"""Learns the sine function. Shows what a job gets from gpuctl, and what it owes it.

checkpoints/step-*      what counts as a checkpoint: the run file says so
GPUCTL_RESUME_FROM      the checkpoint to go on from; empty at the first start
GPUCTL_METRICS          a FIFO that takes one JSON object a line
SIGTERM                 means: save, and leave within the grace
"""
import json
import os
import signal
import sys

import torch

STEPS = int(os.environ.get("STEPS", "2000"))
SAVE_EVERY = max(1, STEPS // 4)


def metric(**numbers):
    path = os.environ.get("GPUCTL_METRICS")
    if path:  # without gpuctl the script runs all the same
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps({"type": "step", **numbers}) + "\n")


def save(step, model, optimizer):
    """Writes under another name and renames, so that a half-written checkpoint is never seen."""
    directory = "checkpoints/step-%d" % step
    partial = "checkpoints/partial"
    os.makedirs(partial, exist_ok=True)
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()},
               os.path.join(partial, "state.pt"))
    if not os.path.exists(directory):
        os.rename(partial, directory)
    print("saved", directory, flush=True)


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = 1
    resume = os.environ.get("GPUCTL_RESUME_FROM")
    if resume:
        state = torch.load(os.path.join(resume, "state.pt"), map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
        print("going on after step", state["step"], flush=True)

    loss = torch.tensor(float("nan"))  # where no step is left to do
    told_to_stop = []
    signal.signal(signal.SIGTERM, lambda *_: told_to_stop.append(True))
    for step in range(first, STEPS + 1):
        x = torch.rand(256, 1, device=device) * 6.28
        loss = torch.nn.functional.mse_loss(model(x), torch.sin(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == STEPS:
            metric(step=step, total_steps=STEPS, loss=loss.item(), lr=3e-3)
        if step % SAVE_EVERY == 0 or step == STEPS or told_to_stop:
            save(step, model, optimizer)
        if told_to_stop:
            sys.exit(143)  # as for a process that SIGTERM ended
    print("final loss %.4f on %s" % (loss.item(), device), flush=True)


if __name__ == "__main__":
    main()
