#include "trainer/cli/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "trainer/base/tensor_heap.h"

#ifdef __GLIBC__  // which those before have told
#include <malloc.h>
#endif

namespace gpuctl::trainer {

namespace {

// Tensors may outlive main.
TensorHeap& HeapOfProcess() {
  static TensorHeap& heap = *new TensorHeap;
  return heap;
}

class HeapAllocator : public c10::Allocator {
 public:
  // LibTorch 1.13 calls the first one, LibTorch 2 the second; so neither says "override".
  c10::DataPtr allocate(size_t size) const {
    void* const data = HeapOfProcess().Allocate(size);
    // In the words of LibTorch's own allocator, see out_of_memory.cc.
    TORCH_CHECK(data != nullptr || size == 0, "can't allocate memory: ", size, " bytes");
    return {data, data, &Free, c10::Device(c10::kCPU)};
  }
  c10::DataPtr allocate(size_t size) { return std::as_const(*this).allocate(size); }
  c10::DeleterFnPtr raw_deleter() const { return &Free; }
  // LibTorch 2 has it as a virtual function, 1.13 has not.
  void copy_data(void* to, const void* from, size_t count) const { std::memcpy(to, from, count); }

 private:
  static void Free(void* data) { HeapOfProcess().Free(data); }
};

// Called when operator new finds no memory: lets it try again, or throws.
void MakeRoom() {
  if (HeapOfProcess().ReleaseFree() == 0) throw std::bad_alloc();
}

}  // namespace

void TuneAllocator() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest value glibc accepts
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  mallopt(M_TOP_PAD, 64 << 20);
  static HeapAllocator& allocator = *new HeapAllocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
  HeapOfProcess();  // which the handler needs, and could not make
  std::set_new_handler(MakeRoom);
#endif
}

}  // namespace gpuctl::trainer
