"""NormalFloat 4 with double quantization, by the formulas of QLoRA (arXiv 2305.14314), for tests."""

import torch

# The paper's appendix.
VALUES = torch.tensor([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0])


def outer_values():
    """Returns the dynamic 8-bit numbers: arXiv 2110.02861, signed, with seven exponents."""
    values = [0.0, 1.0]
    for exponent in range(7):
        edges = torch.linspace(0.1, 1, 2 ** exponent + 1, dtype=torch.float64)
        means = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (exponent - 6)
        values += means.tolist() + (-means).tolist()
    assert len(values) == 256
    return torch.tensor(sorted(values), dtype=torch.float64).float()


def by_blocks(flat, size, values):
    """Returns the nearest values times the largest magnitudes of blocks, and these magnitudes."""
    padded = torch.cat([flat, torch.zeros(-len(flat) % size)]).view(-1, size)
    largest = padded.abs().max(1, keepdim=True).values
    unit = torch.where(largest > 0, padded / largest, torch.zeros(()))
    nearest = torch.cat([values[(row[:, None] - values).abs().argmin(1)][None] for row in unit])
    return nearest, largest


def round_trip(weight):
    """Returns what remains of a weight: fp32 to 4 bits and back."""
    nearest, largest = by_blocks(weight.float().flatten(), 64, VALUES)
    mean = largest.double().mean().float()
    inner, outer = by_blocks((largest - mean).flatten(), 256, outer_values())
    magnitudes = (inner * outer).flatten()[:len(largest)] + mean
    return (nearest * magnitudes[:, None]).flatten()[:weight.numel()].view(weight.shape)
