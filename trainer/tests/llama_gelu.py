"""The decoder of folders.py with the GELU that llama.cpp has on the CPU."""
import copy
import math

import torch

from folders import Decoder


def reference(decoder, weights, prompt):
    wide = {name: weight.double() for name, weight in weights.items()}
    return torch.log_softmax(decoder.logits(wide, torch.tensor([prompt]))[0], -1)


class TableDecoder(Decoder):
    """llama.cpp's GELU on the CPU: a table of 16-bit values by 16-bit arguments, from -10 to 10.

    An argument in the middle of two such numbers is rounded by the last bits of fp32. `ties` gets
    (name, position, gate) of each; those in `turned` go to the other side.
    """

    def logits(self, w, tokens_bt):
        self.ties = []
        return super().logits(w, tokens_bt)

    def feed_forward(self, x, name, linear):
        gate = linear(x, name + "mlp.gate_proj")
        nearest = gate.half()
        second = (2 * gate - nearest.double()).half()
        middle = (nearest.double() + second.double()) / 2
        between = (gate - middle).abs() < 2e-6 * gate.abs().clamp(min=1)
        for _, position, place in (between & (nearest != second)).nonzero():
            tie = (name, int(position), int(place))
            self.ties.append(tie)
            if tie in self.turned:
                nearest[0, position, place] = second[0, position, place]
        inner = nearest.float()
        inner = math.sqrt(2 / math.pi) * inner * (1 + 0.044715 * inner * inner)
        table = (0.5 * nearest.float() * (1 + torch.tanh(inner))).half().double()
        table = torch.where(gate <= -10, torch.zeros_like(gate), torch.where(gate >= 10, gate, table))
        return linear(table * linear(x, name + "mlp.up_proj"), name + "mlp.down_proj")


def table_reference(decoder, weights, prompt, found, near=1e-5):
    """Returns the log-probabilities with llama.cpp's GELU, and how many arguments were turned: at each
    position that is not yet as near to `found` as `near`, those in the middle that bring it nearer."""
    decoder = copy.copy(decoder)
    decoder.__class__, decoder.turned = TableDecoder, set()

    def off_at(position, turned):
        decoder.turned = turned
        return float((reference(decoder, weights, prompt) - found)[position].abs().max())

    def turn_one(position, off):
        """Turns the first argument that brings the position nearer. What a later layer has in the
        middle depends on those before."""
        for tie in [tie for tie in decoder.ties if tie[1] == position and tie not in decoder.turned]:
            before = decoder.turned
            if off_at(position, before | {tie}) < off:
                return True
            off_at(position, before)
        return False

    for position in range(len(prompt)):
        while (off := off_at(position, decoder.turned)) > near and turn_one(position, off):
            pass
    return reference(decoder, weights, prompt), len(decoder.turned)
