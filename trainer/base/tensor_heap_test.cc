#include "trainer/base/tensor_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace gpuctl::trainer {
namespace {

constexpr size_t kKiB = 1 << 10;
constexpr size_t kMiB = 1 << 20;

struct Held {
  unsigned char* data = nullptr;
  size_t size = 0;
  unsigned char sign = 0;
};

Held Fill(TensorHeap& heap, size_t size, unsigned char sign) {
  auto* const data = static_cast<unsigned char*>(heap.Allocate(size));
  EXPECT_NE(data, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % TensorHeap::kAlignment, 0u);
  std::memset(data, sign, size);
  return {data, size, sign};
}

void ExpectWhole(const Held& held) {
  EXPECT_TRUE(std::all_of(held.data, held.data + held.size,
                          [&](unsigned char byte) { return byte == held.sign; }));
}

TEST(TensorHeapTest, NothingAndTooMuchGetNoMemory) {
  TensorHeap heap;
  EXPECT_EQ(heap.Allocate(0), nullptr);
  EXPECT_EQ(heap.Allocate(std::numeric_limits<size_t>::max()), nullptr);
  EXPECT_EQ(heap.Allocate(std::numeric_limits<size_t>::max() / 2), nullptr);
  heap.Free(nullptr);
}

TEST(TensorHeapTest, WhatIsFreeGoesBackToTheSystemByTheRegion) {
  TensorHeap heap;
  void* const first = heap.Allocate(3 * kMiB);
  EXPECT_EQ(heap.ReleaseFree(), 0u);  // the rest of a region that is used
  heap.Free(first);
  const size_t region = heap.free_bytes();
  EXPECT_EQ(heap.ReleaseFree(), region);
  EXPECT_EQ(heap.free_bytes(), 0u);
  heap.Free(Fill(heap, 3 * kMiB, 1).data);
}

#ifdef __linux__
// Returns the flags of the mapping that holds `data`; empty where the system does not tell them.
std::string FlagsOfMapping(const void* data) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(data);
      inside = begin <= at && at < end;
    } else if (inside && line.rfind("VmFlags:", 0) == 0) {
      return line + " ";
    }
  }
  return "";
}

TEST(TensorHeapTest, AsksForHugePages) {
  if (std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").fail()) {
    GTEST_SKIP() << "this kernel has no transparent huge pages";
  }
  TensorHeap heap;
  for (const size_t size : {3 * kMiB, 64 * kMiB}) {
    void* const data = heap.Allocate(size);
    ASSERT_NE(data, nullptr);
    const std::string flags = FlagsOfMapping(data);
    if (flags.empty()) GTEST_SKIP() << "this kernel does not tell the flags of a mapping";
    EXPECT_NE(flags.find(" hg "), std::string::npos) << flags;
    heap.Free(data);
  }
}
#endif

TEST(TensorHeapTest, TheSizeThatWasFreedHasItsPlaceAgain) {
  TensorHeap heap;
  void* const first = heap.Allocate(3 * kMiB);
  void* const between = heap.Allocate(20 * kKiB);
  void* const third = heap.Allocate(5 * kMiB);
  heap.Free(third);
  heap.Free(first);
  EXPECT_EQ(heap.Allocate(3 * kMiB), first);
  EXPECT_EQ(heap.Allocate(5 * kMiB), third);
  heap.Free(first);
  EXPECT_EQ(heap.Allocate(2 * kMiB), first);  // the smallest place that holds it
  for (void* const each : {first, between, third}) heap.Free(each);
}

TEST(TensorHeapTest, FreePlacesBesideEachOtherBecomeOne) {
  TensorHeap heap;
  std::vector<void*> pieces;
  for (int i = 0; i < 8; ++i) pieces.push_back(heap.Allocate(kMiB));
  void* const last = heap.Allocate(kMiB);
  for (const size_t i : {1, 3, 5, 7, 6, 4, 2, 0}) heap.Free(pieces[i]);
  EXPECT_EQ(heap.Allocate(8 * kMiB), pieces[0]);
  heap.Free(pieces[0]);
  heap.Free(last);
  EXPECT_EQ(heap.used_bytes(), 0u);
}

TEST(TensorHeapTest, OnlyThoseBetweenSmallAndLargeSharePlaces) {
  TensorHeap heap;
  const Held small = Fill(heap, 100, 1), large = Fill(heap, 40 * kMiB, 2);
  EXPECT_EQ(heap.used_bytes() + heap.free_bytes(), 0u);
  const Held shared = Fill(heap, kMiB, 3);
  EXPECT_GT(heap.used_bytes(), kMiB);
  for (const Held& held : {small, large, shared}) {
    ExpectWhole(held);
    heap.Free(held.data);
  }
  EXPECT_EQ(heap.used_bytes(), 0u);
}

// Blocks go from thread to thread, as tensors do.
TEST(TensorHeapTest, ThreadsDisturbEachOtherNowhere) {
  TensorHeap heap;
  void* const first = heap.Allocate(kMiB);
  heap.Free(first);
  std::mutex mutex;
  std::vector<Held> all;
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < 2000; ++round) {
      const size_t size = size_t{1} << random() % 19;
      const Held held = Fill(heap, size + random() % size, static_cast<unsigned char>(random()));
      Held taken;
      {
        const std::lock_guard<std::mutex> lock(mutex);
        all.push_back(held);
        std::swap(all[random() % all.size()], all.back());
        if (all.size() <= 40) continue;
        taken = all.back();
        all.pop_back();
      }
      ExpectWhole(taken);
      heap.Free(taken.data);
    }
  };
  std::vector<std::thread> threads;
  for (const unsigned seed : {1, 2, 3}) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  for (const Held& held : all) {
    ExpectWhole(held);
    heap.Free(held.data);
  }
  EXPECT_EQ(heap.used_bytes(), 0u);
  // All of it is one place again, which begins where the first block lay.
  void* const most = heap.Allocate(31 * kMiB);
  EXPECT_EQ(most, first);
  heap.Free(most);
}

}  // namespace
}  // namespace gpuctl::trainer
