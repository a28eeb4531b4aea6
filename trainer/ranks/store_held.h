// What a Store holds, for the files that give it to LibTorch.

#ifndef TRAINER_RANKS_STORE_HELD_H_
#define TRAINER_RANKS_STORE_HELD_H_

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace gpuctl::trainer {

struct HeldStore {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_RANKS_STORE_HELD_H_
