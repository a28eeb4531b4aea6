#include "trainer/base/tensor_heap.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace gpuctl::trainer {
namespace {

// Below this malloc wastes little.
constexpr size_t kLeastShared = 16 << 10;
// From here on the system gives the memory. Its pages cost time, but none of them is left over.
constexpr size_t kLeastOfSystem = 32 << 20;
// A region takes addresses; memory only where it was used.
constexpr size_t kRegion = size_t{1} << 30;
// The same where addresses are limited, as by "ulimit -v".
constexpr size_t kSmallRegion = size_t{64} << 20;

size_t RoundUp(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

void* Map(size_t size) {
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
#ifdef MADV_HUGEPAGE
  // Only advice. On pages of 4 KB each row of a large matrix would lie on a page of its own, and
  // the processor remembers the places of few pages.
  (void)::madvise(memory, size, MADV_HUGEPAGE);
#endif
  return memory;
}

bool AddressesAreLimited() {
  struct rlimit limit;
  return ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

// What lies before the bytes of a tensor.
struct alignas(TensorHeap::kAlignment) TensorHeap::Block {
  enum class Origin { kMalloc, kRegion, kSystem };

  size_t size = 0;  // with this
  Origin origin = Origin::kRegion;
  bool free = false;
  void* given = nullptr;    // by malloc
  Block* before = nullptr;  // its neighbours in the region
  Block* behind = nullptr;
  Block* previous = nullptr;  // in the list of free ones
  Block* next = nullptr;

  void* data() { return this + 1; }
  static Block* Of(void* data) { return static_cast<Block*>(data) - 1; }
};

void* TensorHeap::Allocate(size_t size) {
  static_assert(sizeof(Block) == kAlignment);
  if (size == 0 || size > std::numeric_limits<size_t>::max() / 2) return nullptr;
  void* const data = TryToAllocate(size);
  return data == nullptr && ReleaseFree() > 0 ? TryToAllocate(size) : data;
}

void* TensorHeap::TryToAllocate(size_t size) {
  const size_t whole = RoundUp(size, kAlignment) + sizeof(Block);
  if (size >= kLeastShared && size < kLeastOfSystem) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Block* const block = TakeFromRegions(whole);
    return block == nullptr ? nullptr : block->data();
  }
  const bool small = size < kLeastShared;
  void* const given = small ? std::malloc(whole + kAlignment) : Map(whole);
  if (given == nullptr) return nullptr;
  // malloc aligns to fewer bytes.
  const uintptr_t place = RoundUp(reinterpret_cast<uintptr_t>(given), kAlignment);
  Block* const block = new (reinterpret_cast<void*>(place)) Block;
  block->size = whole;
  block->origin = small ? Block::Origin::kMalloc : Block::Origin::kSystem;
  block->given = given;
  return block->data();
}

void TensorHeap::Free(void* data) {
  if (data == nullptr) return;
  Block* const block = Block::Of(data);
  if (block->origin == Block::Origin::kMalloc) return std::free(block->given);
  if (block->origin == Block::Origin::kSystem) {
    ::munmap(block->given, block->size);
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  used_bytes_ -= block->size;
  Link(block);
  if (block->behind != nullptr && block->behind->free) Join(block);
  if (block->before != nullptr && block->before->free) Join(block->before);
}

size_t TensorHeap::ReleaseFree() {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t released = 0;
  for (Block* block = first_free_; block != nullptr;) {
    Block* const next = block->next;
    if (block->before == nullptr && block->behind == nullptr) {  // the whole region
      Unlink(block);
      released += block->size;
      ::munmap(block, block->size);
    }
    block = next;
  }
  return released;
}

// Returns the smallest free block that holds `size` bytes, and of these the first.
TensorHeap::Block* TensorHeap::TakeFromRegions(size_t size) {
  for (int tries = 0; tries < 2; ++tries) {
    Block* best = nullptr;
    for (Block* block = first_free_; block != nullptr; block = block->next) {
      if (block->size < size) continue;
      if (best == nullptr || block->size < best->size ||
          (block->size == best->size && block < best)) {
        best = block;
      }
    }
    if (best != nullptr) {
      Unlink(best);
      Split(best, size);
      used_bytes_ += best->size;
      return best;
    }
    if (!AddRegion(size)) break;
  }
  return nullptr;
}

bool TensorHeap::AddRegion(size_t size) {
  const size_t least = RoundUp(size, kSmallRegion);
  size_t wanted = AddressesAreLimited() ? least : std::max(kRegion, least);
  void* memory = Map(wanted);
  if (memory == nullptr) {
    wanted = least;
    memory = Map(wanted);
  }
  if (memory == nullptr) return false;
  Block* const block = new (memory) Block;
  block->size = wanted;
  Link(block);
  return true;
}

// Leaves `size` bytes in the block, which is in no list, and makes the rest a free one.
void TensorHeap::Split(Block* block, size_t size) {
  if (block->size - size < kLeastShared) return;
  Block* const rest = new (reinterpret_cast<char*>(block) + size) Block;
  rest->size = block->size - size;
  rest->before = block;
  rest->behind = block->behind;
  if (rest->behind != nullptr) rest->behind->before = rest;
  block->behind = rest;
  block->size = size;
  Link(rest);
}

// Makes a free block and the free one behind it one.
void TensorHeap::Join(Block* first) {
  Block* const second = first->behind;
  Unlink(first);
  Unlink(second);
  first->size += second->size;
  first->behind = second->behind;
  if (first->behind != nullptr) first->behind->before = first;
  Link(first);
}

void TensorHeap::Link(Block* block) {
  block->free = true;
  block->previous = nullptr;
  block->next = first_free_;
  if (first_free_ != nullptr) first_free_->previous = block;
  first_free_ = block;
  free_bytes_ += block->size;
}

void TensorHeap::Unlink(Block* block) {
  (block->previous != nullptr ? block->previous->next : first_free_) = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
  block->free = false;
  free_bytes_ -= block->size;
}

size_t TensorHeap::free_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return free_bytes_;
}

size_t TensorHeap::used_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return used_bytes_;
}

}  // namespace gpuctl::trainer
