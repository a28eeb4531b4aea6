"""Learns the sine function with Lightning. It knows nothing of gpuctl."""
import os

import lightning
import torch

STEPS = int(os.environ.get("STEPS", "500"))


class Sine(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.net(batch), torch.sin(batch))
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


loader = torch.utils.data.DataLoader(torch.rand(256 * STEPS, 1) * 6.28, batch_size=256)
saver = lightning.pytorch.callbacks.ModelCheckpoint(
    dirpath="checkpoints", every_n_train_steps=max(1, STEPS // 4), save_top_k=-1)
trainer = lightning.Trainer(max_steps=STEPS, callbacks=[saver], logger=False, log_every_n_steps=10)
trainer.fit(Sine(), loader, ckpt_path=os.environ.get("GPUCTL_RESUME_FROM") or None)
