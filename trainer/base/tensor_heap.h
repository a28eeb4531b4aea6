// Memory for tensors on the CPU. Uses no LibTorch.

#ifndef TRAINER_BASE_TENSOR_HEAP_H_
#define TRAINER_BASE_TENSOR_HEAP_H_

#include <cstddef>
#include <mutex>

namespace gpuctl::trainer {

// One heap for the tensors of all threads, so that what one has freed serves the others, too. Each
// tensor gets the smallest free place that holds it, and free places beside each other become one.
// Tensors of 32 MiB and more are the system's again as soon as they are freed; all others stay for
// the next ones until memory is short, and small ones are malloc's. Thread-safe.
class TensorHeap {
 public:
  static constexpr size_t kAlignment = 64;  // in bytes; that of LibTorch's own allocator

  TensorHeap() = default;
  // Never destroyed while there are blocks.
  TensorHeap(const TensorHeap&) = delete;
  TensorHeap& operator=(const TensorHeap&) = delete;

  // Returns `size` bytes, which are not cleared: nullptr when there is no memory, or for size 0.
  void* Allocate(size_t size);
  // Takes what Allocate returned, nullptr too, on any thread.
  void Free(void* data);

  // Gives the system the memory of regions in which nothing is used. Returns its bytes. Allocate
  // does so by itself before it returns nullptr.
  size_t ReleaseFree();

  // The bytes of free places, and the bytes in use, of the tensors that share places.
  size_t free_bytes() const;
  size_t used_bytes() const;

 private:
  struct Block;

  void* TryToAllocate(size_t size);
  Block* TakeFromRegions(size_t size);
  bool AddRegion(size_t size);
  void Split(Block* block, size_t size);
  void Join(Block* first);
  void Link(Block* block);
  void Unlink(Block* block);

  mutable std::mutex mutex_;
  Block* first_free_ = nullptr;  // guarded by mutex_
  size_t free_bytes_ = 0;        // guarded by mutex_
  size_t used_bytes_ = 0;        // guarded by mutex_
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_TENSOR_HEAP_H_
