// What real tools print, byte for byte: tqdm's bars were captured, the others are as the tools
// write them to a file or a pipe.
#ifndef GPUCTL_CLIENT_METRICS_TEST_PRINTED_OUTPUT_H_
#define GPUCTL_CLIENT_METRICS_TEST_PRINTED_OUTPUT_H_

#include "absl/strings/string_view.h"

namespace gpuctl {

// clang-format off
inline constexpr absl::string_view kTrainer =
    "\r  0%|          | 0/30 [00:00<?, ?it/s]"
    "\r 17%|█▋        | 5/30 [00:00<00:00, 49.64it/s]"
    "\r 33%|███▎      | 10/30 [00:00<00:00, 49.50it/s]"
    "\r                                               "
    "\r{'loss': 2.5, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 1.0}\n"
    "\r 33%|███▎      | 10/30 [00:00<00:00, 49.50it/s]"
    "\r 50%|█████     | 15/30 [00:00<00:00, 48.73it/s]\n"
    "\r  0%|          | 0/7 [00:00<?, ?it/s]\x1b[A\n"
    "\r 57%|█████▋    | 4/7 [00:00<00:00, 33.18it/s]\x1b[A"
    "\r                                               "
    "\r\n"
    "\r                                             "
    "\r\x1b[A{'eval_loss': 1.35, 'eval_runtime': 1.2, 'epoch': 1.5}\n"
    "\r 50%|█████     | 15/30 [00:00<00:00, 48.73it/s]\n"
    "\r100%|██████████| 7/7 [00:00<00:00, 33.18it/s]\x1b[A\n"
    "\r                                             \x1b[A"
    "\r 67%|██████▋   | 20/30 [00:00<00:00, 26.92it/s]"
    "\r                                               "
    "\r{'loss': 2.0, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 2.0}\n"
    "\r 67%|██████▋   | 20/30 [00:00<00:00, 26.92it/s]"
    "\r 83%|████████▎ | 25/30 [00:00<00:00, 31.96it/s]"
    "\r100%|██████████| 30/30 [00:00<00:00, 36.08it/s]"
    "\r                                               "
    "\r{'loss': 1.5, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 3.0}\n"
    "\r100%|██████████| 30/30 [00:00<00:00, 36.08it/s]\n"
    "\r  0%|          | 0/7 [00:00<?, ?it/s]\x1b[A\n"
    "\r 57%|█████▋    | 4/7 [00:00<00:00, 32.75it/s]\x1b[A"
    "\r                                               "
    "\r\n"
    "\r                                             "
    "\r\x1b[A{'eval_loss': 1.2, 'eval_runtime': 1.2, 'epoch': 3.0}\n"
    "\r100%|██████████| 30/30 [00:01<00:00, 36.08it/s]\n"
    "\r100%|██████████| 7/7 [00:00<00:00, 32.75it/s]\x1b[A\n"
    "\r                                             \x1b[A"
    "\r                                               "
    "\r{'train_runtime': 12.3, 'train_samples_per_second': 3.2, 'train_steps_per_second': 0.4, 'train_loss': 2.345, 'epoch': 3.0}\n"
    "\r100%|██████████| 30/30 [00:01<00:00, 36.08it/s]"
    "\r100%|██████████| 30/30 [00:01<00:00, 28.77it/s]\n";

inline constexpr absl::string_view kNestedBars =
    "\repochs:   0%|          | 0/2 [00:00<?, ?it/s]\n"
    "\r  0%|          | 0/4 [00:00<?, ?it/s]\x1b[A\n"
    "\r  0%|          | 0/4 [00:00<?, ?it/s, loss=1]\x1b[A\n"
    "\r 25%|██▌       | 1/4 [00:00<00:00,  6.53it/s, loss=1]\x1b[A\n"
    "\r 25%|██▌       | 1/4 [00:00<00:00,  6.53it/s, loss=0.5]\x1b[A\n"
    "\r 50%|█████     | 2/4 [00:00<00:00,  6.59it/s, loss=0.5]\x1b[A\n"
    "\r 50%|█████     | 2/4 [00:00<00:00,  6.59it/s, loss=0.333]\x1b[A\n"
    "\r 75%|███████▌  | 3/4 [00:00<00:00,  6.61it/s, loss=0.333]\x1b[A\n"
    "\r 75%|███████▌  | 3/4 [00:00<00:00,  6.61it/s, loss=0.25] \x1b[A\n"
    "\r100%|██████████| 4/4 [00:00<00:00,  6.62it/s, loss=0.25]\x1b[A"
    "\r100%|██████████| 4/4 [00:00<00:00,  6.61it/s, loss=0.25]\n"
    "\repochs:  50%|█████     | 1/2 [00:00<00:00,  1.65it/s]\n"
    "\r  0%|          | 0/4 [00:00<?, ?it/s]\x1b[A\n"
    "\r  0%|          | 0/4 [00:00<?, ?it/s, loss=0.5]\x1b[A\n"
    "\r 25%|██▌       | 1/4 [00:00<00:00,  6.65it/s, loss=0.5]\x1b[A\n"
    "\r 25%|██▌       | 1/4 [00:00<00:00,  6.65it/s, loss=0.333]\x1b[A\n"
    "\r 50%|█████     | 2/4 [00:00<00:00,  6.64it/s, loss=0.333]\x1b[A\n"
    "\r 50%|█████     | 2/4 [00:00<00:00,  6.64it/s, loss=0.25] \x1b[A\n"
    "\r 75%|███████▌  | 3/4 [00:00<00:00,  6.64it/s, loss=0.25]\x1b[A\n"
    "\r 75%|███████▌  | 3/4 [00:00<00:00,  6.64it/s, loss=0.2] \x1b[A\n"
    "\r100%|██████████| 4/4 [00:00<00:00,  6.64it/s, loss=0.2]\x1b[A"
    "\r100%|██████████| 4/4 [00:00<00:00,  6.64it/s, loss=0.2]\n"
    "\repochs: 100%|██████████| 2/2 [00:01<00:00,  1.66it/s]"
    "\repochs: 100%|██████████| 2/2 [00:01<00:00,  1.66it/s]\n";

inline constexpr absl::string_view kGluedToBar =
    "\rEpoch 1:   0%|          | 0/3 [00:00<?, ?it/s]loss 0.5\n"
    "\rEpoch 1:  33%|███▎      | 1/3 [00:00<00:00,  4.99it/s]loss 0.5\n"
    "\rEpoch 1:  67%|██████▋   | 2/3 [00:00<00:00,  4.99it/s]loss 0.5\n"
    "\rEpoch 1: 100%|██████████| 3/3 [00:00<00:00,  4.96it/s]"
    "\rEpoch 1: 100%|██████████| 3/3 [00:00<00:00,  4.97it/s]\n";

inline constexpr absl::string_view kLightning =
    "\rSanity Checking DataLoader 0:   0%|          | 0/2 [00:00<?, ?it/s]"
    "\rSanity Checking DataLoader 0: 100%|██████████| 2/2 [00:00<00:00, 38.23it/s]"
    "\r                                                                           "
    "\rTraining: |          | 0/? [00:00<?, ?it/s]"
    "\rTraining:   0%|          | 0/4 [00:00<?, ?it/s]"
    "\rEpoch 0:   0%|          | 0/4 [00:00<?, ?it/s] "
    "\rEpoch 0:  50%|█████     | 2/4 [00:01<00:01,  1.52it/s, v_num=3, train_loss_step=2.310]"
    "\rEpoch 0: 100%|██████████| 4/4 [00:02<00:00,  1.55it/s, v_num=3, train_loss_step=2.100]\n"
    "\rValidation: |          | 0/? [00:00<?, ?it/s]\x1b[A\n"
    "\rValidation:   0%|          | 0/2 [00:00<?, ?it/s]\x1b[A\n"
    "\rValidation DataLoader 0: 100%|██████████| 2/2 [00:00<00:00, 95.04it/s]\x1b[A\n"
    "\r                                                                      \x1b[A"
    "\rEpoch 0: 100%|██████████| 4/4 [00:02<00:00,  1.50it/s, v_num=3, train_loss_step=2.100, val_loss=2.050]"
    "\rEpoch 0: 100%|██████████| 4/4 [00:02<00:00,  1.50it/s, v_num=3, train_loss_step=2.100, val_loss=2.050, train_loss_epoch=2.200]"
    "\rEpoch 0:   0%|          | 0/4 [00:00<?, ?it/s, v_num=3, train_loss_step=2.100, val_loss=2.050, train_loss_epoch=2.200]"
    "\rEpoch 1:   0%|          | 0/4 [00:00<?, ?it/s, v_num=3, train_loss_step=2.100, val_loss=2.050, train_loss_epoch=2.200]"
    "\rEpoch 1:  50%|█████     | 2/4 [00:01<00:01,  1.52it/s, v_num=3, train_loss_step=1.900, val_loss=2.050, train_loss_epoch=2.200]";

inline constexpr absl::string_view kKeras =
    "Epoch 1/2\n"
    "\x1b[1m  1/125\x1b[0m \x1b[37m━━━━━━━━━━━━━━━━━━━━\x1b[0m \x1b[1m37s\x1b[0m 305ms/step - accuracy: 0.0938 - loss: 2.3841\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b"
    "\r\x1b[1m 61/125\x1b[0m \x1b[32m━━━━━━━━━\x1b[0m\x1b[37m━━━━━━━━━━━\x1b[0m \x1b[1m0s\x1b[0m 4ms/step - accuracy: 0.5012 - loss: 1.5000\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b"
    "\r\x1b[1m125/125\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m2s\x1b[0m 15ms/step - accuracy: 0.8021 - loss: 0.6200 - val_accuracy: 0.8500 - val_loss: 0.5100\n"
    "Epoch 2/2\n"
    "\x1b[1m125/125\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m2s\x1b[0m 15ms/step - accuracy: 0.9021 - loss: 0.4200 - val_accuracy: 0.9000 - val_loss: 0.3100\n"
    "\x1b[1m 1/32\x1b[0m \x1b[37m━━━━━━━━━━━━━━━━━━━━\x1b[0m \x1b[1m1s\x1b[0m 33ms/step - accuracy: 0.9062 - loss: 0.2900\b\b"
    "\r\x1b[1m32/32\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m 2ms/step - accuracy: 0.9011 - loss: 0.3000\n";

inline constexpr absl::string_view kKerasTwo =
    "Epoch 1/3\n"
    "  1/125 [..............................] - ETA: 37s - loss: 2.3841\b\b\b\b"
    "\r 63/125 [==============>...............] - ETA: 1s - loss: 1.5000\b\b\b\b"
    "\r125/125 [==============================] - 2s 15ms/step - loss: 0.6200\n";

inline constexpr absl::string_view kFastai =
    "epoch     train_loss  valid_loss  accuracy  time    \n"
    "\rEpoch 1/2 : |----------------------------------------------------| 0.00% [0/100 00:00<?]"
    "\rEpoch 1/2 : |██████████████████████------------------------------| 45.00% [45/100 00:10<00:12 0.9500]"
    "\rEpoch 1/2 : |██████████████████████████████████████████████████████| 100.00% [100/100 00:22<00:00 0.8932]"
    "\rEpoch 1/2 : |██████████████████████████--------------------------| 50.00% [10/20 00:01<00:01]"
    "\r0         0.893210    0.512345    0.812000  00:24     \n"
    "\rEpoch 2/2 : |█████████████-------------------------------| 25.00% [25/100 00:05<00:15 0.7000]"
    "\r1         0.612300    0.412345    0.852000  00:24     \n";

inline constexpr absl::string_view kFastaiTable =
    "epoch     train_loss  valid_loss  accuracy  time    \n"
    "0         0.893210    0.512345    0.812000  00:24     \n"
    "1         0.612300    0.412345    0.852000  00:24     \n";

inline constexpr absl::string_view kYolo =
    "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
    "\r  0%|          | 0/8 [00:00<?, ?it/s]"
    "\r      1/3      2.35G      1.177      2.500      1.250         16        640:   0%|          | 0/8 [00:00<?, ?it/s]"
    "\r      1/3      2.35G      1.100      2.400      1.200         12        640: 100%|██████████| 8/8 [00:02<00:00,  3.35it/s]\n"
    "\r                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95):   0%|          | 0/2 [00:00<?, ?it/s]"
    "\r                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|██████████| 2/2 [00:00<00:00,  3.51it/s]\n"
    "                   all        128        929      0.671      0.521      0.611      0.449\n"
    "\n"
    "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
    "\r      2/3      2.41G      1.000      2.000      1.000         14        640:  50%|█████     | 4/8 [00:01<00:01,  3.35it/s]";

inline constexpr absl::string_view kNanoGpt =
    "number of parameters: 10.65M\n"
    "step 0: train loss 4.2874, val loss 4.2823\n"
    "iter 0: loss 4.2598, time 18232.57ms, mfu -100.00%\n"
    "iter 10: loss 3.1444, time 12.04ms, mfu 3.10%\n"
    "step 250: train loss 1.9600, val loss 2.0600\n"
    "saving checkpoint to out\n"
    "iter 250: loss 1.9500, time 12.04ms, mfu 3.10%\n";

inline constexpr absl::string_view kTorchtune =
    "  0%|          | 0/3 [00:00<?, ?it/s]"
    "\r 33%|███▎      | 1/3 [00:12<00:24, 12.10s/it]"
    "\r1|1|Loss: 2.5000:  33%|███▎      | 1/3 [00:12<00:24, 12.10s/it]"
    "\r1|1|Loss: 2.5000:  67%|██████▋   | 2/3 [00:24<00:12, 12.05s/it]"
    "\r1|2|Loss: 2.4000:  67%|██████▋   | 2/3 [00:24<00:12, 12.05s/it]"
    "\r1|2|Loss: 2.4000: 100%|██████████| 3/3 [00:36<00:00, 12.03s/it]"
    "\r1|3|Loss: 2.3000: 100%|██████████| 3/3 [00:36<00:00, 12.03s/it]\n"
    "  0%|          | 0/3 [00:00<?, ?it/s]"
    "\r2|4|Loss: 2.2000:  33%|███▎      | 1/3 [00:12<00:24, 12.10s/it]";

inline constexpr absl::string_view kAxolotl =
    "[2024-05-01 10:00:00,123] [INFO] [axolotl.load_datasets:120] [PID:1] [RANK:0] Loading raw datasets...\n"
    "\rMap (num_proc=8):   0%|          | 0/52002 [00:00<?, ? examples/s]"
    "\rMap (num_proc=8): 100%|██████████| 52002/52002 [00:05<00:00, 9000.1 examples/s]\n"
    "Dropping Long Sequences: 100%|██████████| 52002/52002 [00:02<00:00, 20000.00it/s]\n"
    "\rLoading checkpoint shards: 100%|██████████| 2/2 [00:05<00:00,  2.60s/it]\n"
    "\r  0%|          | 0/1500 [00:00<?, ?it/s]"
    "\r  0%|          | 1/1500 [00:04<1:46:40,  4.27s/it]"
    "\r                                                  "
    "\r{'loss': 1.4027, 'grad_norm': 0.6875, 'learning_rate': 2e-05, 'epoch': 0.0}\n"
    "\r  0%|          | 1/1500 [00:04<1:46:40,  4.27s/it]"
    "\r  0%|          | 2/1500 [00:08<1:44:30,  4.19s/it]";

inline constexpr absl::string_view kDeepSpeed =
    "[2024-05-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[9.65e-06, 9.65e-06], mom=[(0.9, 0.95), (0.9, 0.95)]\n"
    "steps: 10 loss: 2.1234 iter time (s): 0.512 samples/sec: 31.250\n"
    "[2024-05-01 10:00:09,123] [INFO] [timer.py:260:stop] epoch=0/micro_step=20/global_step=20, RunningAvgSamplesPerSec=31.2, CurrSamplesPerSec=31.3, MemAllocated=5.9GB, MaxMemAllocated=17.0GB\n"
    "steps: 20 loss: 2.0234 iter time (s): 0.511 samples/sec: 31.350\n";

inline constexpr absl::string_view kMegatron =
    " [2024-05-01 10:00:00] iteration       10/    1000 | consumed samples:          160 | elapsed time per iteration (ms): 1234.5 | learning rate: 1.500000E-05 | global batch size:    16 | lm loss: 1.056782E+01 | loss scale: 1.0 | grad norm: 5.912 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    "-----------------------------------------------------------------------------------------------\n"
    " validation loss at iteration 10 | lm loss value: 9.912345E+00 | lm loss PPL: 2.017891E+04 | \n"
    "-----------------------------------------------------------------------------------------------\n"
    " [2024-05-01 10:00:12] iteration       20/    1000 | consumed samples:          320 | elapsed time per iteration (ms): 1230.1 | learning rate: 3.000000E-05 | global batch size:    16 | lm loss: 9.956782E+00 | loss scale: 1.0 | grad norm: 4.012 | number of skipped iterations:   0 | number of nan iterations:   0 |\n";

inline constexpr absl::string_view kLlamaFactory =
    "\r  7%|▋         | 10/150 [00:20<04:40,  2.00s/it]"
    "\r                                                "
    "\r{'loss': 1.5021, 'grad_norm': 1.1, 'learning_rate': 4.9e-05, 'epoch': 0.2, 'num_input_tokens_seen': 20480}\n"
    "\r  7%|▋         | 10/150 [00:20<04:40,  2.00s/it][INFO|2024-05-01 10:00:00] llamafactory.train.callbacks:143 >> {'loss': 1.5021, 'learning_rate': 4.9000e-05, 'epoch': 0.20, 'throughput': 1024.5}\n"
    "\r100%|██████████| 150/150 [05:00<00:00,  2.00s/it]"
    "\r                                                "
    "\r{'train_runtime': 300.1, 'train_samples_per_second': 8.0, 'train_steps_per_second': 0.5, 'train_loss': 1.1234, 'epoch': 3.0}\n"
    "***** train metrics *****\n"
    "  epoch                    =        3.0\n"
    "  total_flos               =  1234567GF\n"
    "  train_loss               =     1.1234\n"
    "  train_runtime            = 0:05:00.10\n"
    "\r  0%|          | 0/12 [00:00<?, ?it/s]"
    "\r100%|██████████| 12/12 [00:05<00:00,  2.2it/s]\n"
    "***** eval metrics *****\n"
    "  eval_loss                =     0.9876\n"
    "  perplexity               =     2.6848\n";

inline constexpr absl::string_view kAccelerate =
    "05/01/2024 10:00:00 - INFO - __main__ - ***** Running training *****\n"
    "05/01/2024 10:00:00 - INFO - __main__ -   Num Epochs = 2\n"
    "\r  0%|          | 0/200 [00:00<?, ?it/s]"
    "\r 50%|█████     | 100/200 [00:50<00:50,  2.00it/s]05/01/2024 10:01:00 - INFO - __main__ - epoch 0: perplexity: 23.1 eval_loss: 3.1398\n"
    "\r100%|██████████| 200/200 [01:40<00:00,  2.00it/s]05/01/2024 10:02:00 - INFO - __main__ - epoch 1: perplexity: 20.2 eval_loss: 3.0056\n";

inline constexpr absl::string_view kTimm =
    "Train: 0 [   0/1251 (  0%)]  Loss: 6.932 (6.93)  Time: 2.104s,  121.67/s  (2.104s,  121.67/s)  LR: 1.000e-06  Data: 1.301 (1.301)\n"
    "Train: 0 [1250/1251 (100%)]  Loss: 6.500 (6.71)  Time: 0.304s,  841.67/s  (0.314s,  821.67/s)  LR: 1.000e-06  Data: 0.001 (0.011)\n"
    "Test: [   0/48]  Time: 1.502 (1.502)  Loss:  6.4200 (6.4200)  Acc@1:   1.9531 (  1.9531)\n"
    "Test: [  48/48]  Time: 0.102 (0.202)  Loss:  6.3000 (6.4000)  Acc@1:   1.9531 (  1.9531)\n"
    "Train: 1 [   0/1251 (  0%)]  Loss: 6.400 (6.40)  Time: 1.104s,  221.67/s  (1.104s,  221.67/s)  LR: 2.000e-04  Data: 0.801 (0.801)\n"
    "Train: 1 [  50/1251 (  4%)]  Loss: 6.300 (6.35)  Time: 0.304s,  841.67/s  (0.314s,  821.67/s)  LR: 2.000e-04  Data: 0.001 (0.011)\n";

inline constexpr absl::string_view kTorchvision =
    "Epoch: [0]  [  0/50]  eta: 0:01:40  lr: 0.1  img/s: 30.1  loss: 6.9123 (6.9123)  acc1: 0.0000 (0.0000)  time: 2.0012  data: 1.0012  max mem: 2000\n"
    "Epoch: [0]  [ 40/50]  eta: 0:00:20  lr: 0.1  img/s: 30.1  loss: 5.9123 (6.3123)  acc1: 0.0000 (0.0000)  time: 2.0012  data: 1.0012  max mem: 2000\n"
    "Epoch: [0] Total time: 0:01:40\n"
    "Epoch: [1]  [  0/50]  eta: 0:01:40  lr: 0.1  img/s: 30.1  loss: 5.5000 (5.5000)  acc1: 0.0000 (0.0000)  time: 2.0012  data: 1.0012  max mem: 2000\n";

inline constexpr absl::string_view kPyTorchExample =
    "Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.297471\n"
    "Train Epoch: 1 [640/60000 (1%)]\tLoss: 1.500000\n"
    "\n"
    "Test set: Average loss: 0.0533, Accuracy: 9830/10000 (98%)\n"
    "\n"
    "Train Epoch: 2 [0/60000 (0%)]\tLoss: 0.200000\n";

inline constexpr absl::string_view kTutorial =
    "Epoch [1/2], Step [100/600], Loss: 0.5000\n"
    "Epoch [1/2], Step [600/600], Loss: 0.4000\n"
    "Epoch [2/2], Step [100/600], Loss: 0.3000\n";

inline constexpr absl::string_view kFlax =
    "I0501 10:00:00.123456 140 logging_writer.py:48] [100] accuracy=0.52, learning_rate=0.1, loss=2.345, steps_per_second=3.2\n"
    "I0501 10:01:00.123456 140 logging_writer.py:48] [100] eval_accuracy=0.55, eval_loss=2.2\n"
    "I0501 10:02:00.123456 140 logging_writer.py:48] [200] accuracy=0.62, learning_rate=0.1, loss=1.345, steps_per_second=3.2\n";

inline constexpr absl::string_view kFlaxMnist =
    "INFO:absl:epoch:  1, train_loss: 0.2325, train_accuracy: 93.00, test_loss: 0.0533, test_accuracy: 98.30\n"
    "INFO:absl:epoch:  2, train_loss: 0.0600, train_accuracy: 98.00, test_loss: 0.0433, test_accuracy: 98.60\n";

inline constexpr absl::string_view kOneLineAndBars =
    "step 3: initial loss 10.5\n"
    "\r  0%|          | 0/4 [00:00<?, ?it/s]"
    "\r 25%|██▌       | 1/4 [00:00<00:00,  6.53it/s]\n"
    "step 7/9 loss 2.5\n"
    "step 8/9 loss 2.5\n"
    "\r 50%|█████     | 2/4 [00:00<00:00,  6.59it/s]\n"
    "val step 3/3 loss 2.75\n"
    "\r 75%|███████▌  | 3/4 [00:00<00:00,  6.61it/s]\n";

// clang-format on

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_METRICS_TEST_PRINTED_OUTPUT_H_
