"""Trains a tiny GPT-2 from scratch with the Hugging Face Trainer. It knows nothing of gpuctl.

gpuctl reads loss, learning rate and step from the lines that the Trainer prints, and takes
out/checkpoint-* for checkpoints. A resumed run finds its newest one in GPUCTL_RESUME_FROM.
"""
import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

STEPS = int(os.environ.get("STEPS", "500"))
CONTEXT = 64


class Bytes(torch.utils.data.Dataset):
    """This file's own bytes, in windows."""

    def __init__(self):
        with open(__file__, "rb") as file:
            self.data = torch.tensor(list(file.read()))

    def __len__(self):
        return len(self.data) - CONTEXT

    def __getitem__(self, at):
        window = self.data[at:at + CONTEXT]
        return {"input_ids": window, "labels": window}


model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=CONTEXT, n_embd=64, n_layer=2, n_head=2))
arguments = TrainingArguments(
    output_dir="out", max_steps=STEPS, per_device_train_batch_size=16, learning_rate=1e-3,
    logging_steps=10, save_steps=max(1, STEPS // 4), report_to=[])
trainer = Trainer(model=model, args=arguments, train_dataset=Bytes())
trainer.train(resume_from_checkpoint=os.environ.get("GPUCTL_RESUME_FROM") or None)
trainer.save_metrics("all", {"final_step": trainer.state.global_step})
