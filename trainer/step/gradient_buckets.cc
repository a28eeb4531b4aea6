#include "trainer/step/gradient_buckets.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trainer/base/error.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kBucketElements = (25 << 20) / 4;
// The first one is small, so that the way is used soon.
constexpr int64_t kFirstElements = (1 << 20) / 4;

int64_t SizeOf(const ParameterSpec& spec) {
  int64_t count = 1;
  for (const int64_t extent : spec.shape) count *= extent;
  return count;
}

}  // namespace

GradientBuckets::GradientBuckets(Collectives& collectives, const std::vector<ParameterSpec>& specs,
                                 const std::vector<size_t>& trained, c10::Device device,
                                 int workers, std::function<void(size_t)> merge)
    : collectives_(collectives),
      workers_(workers),
      merge_(std::move(merge)),
      places_(specs.size()),
      bucket_of_(specs.size()),
      ready_(static_cast<size_t>(workers), std::vector<bool>(specs.size())) {
  int64_t elements = 0;
  std::vector<int64_t> sizes;
  for (auto spec = trained.rbegin(); spec != trained.rend(); ++spec) {
    const int64_t size = SizeOf(specs[*spec]);
    const int64_t most = buckets_.size() <= 1 ? kFirstElements : kBucketElements;
    if (buckets_.empty() || (elements > 0 && elements + size > most)) {
      buckets_.emplace_back();
      elements = 0;
    }
    buckets_.back().parameters.push_back(*spec);
    bucket_of_[*spec] = buckets_.size() - 1;
    elements += size;
  }
  for (Bucket& bucket : buckets_) {
    int64_t size = 0;
    for (const size_t i : bucket.parameters) size += SizeOf(specs[i]);
    bucket.sum = at::zeros({size}, at::TensorOptions(at::kFloat).device(device));
    int64_t at = 0;
    for (const size_t i : bucket.parameters) {
      places_[i] = bucket.sum.narrow(0, at, SizeOf(specs[i])).view(specs[i].shape);
      at += SizeOf(specs[i]);
    }
  }
}

void GradientBuckets::Begin() {
  const at::NoGradGuard no_grad;
  const std::lock_guard<std::mutex> lock(mutex_);
  next_ = 0;
  sent_early_ = 0;
  for (std::vector<bool>& of_worker : ready_) std::fill(of_worker.begin(), of_worker.end(), false);
  for (Bucket& bucket : buckets_) {
    bucket.missing = static_cast<int64_t>(bucket.parameters.size()) * workers_;
    bucket.pending.reset();
    bucket.sum.zero_();
  }
}

void GradientBuckets::Count(int worker, size_t parameter) {
  std::vector<bool>& of_worker = ready_[static_cast<size_t>(worker)];
  if (of_worker[parameter]) return;
  of_worker[parameter] = true;
  --buckets_[bucket_of_[parameter]].missing;
}

void GradientBuckets::Ready(int worker, size_t parameter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ready_[static_cast<size_t>(worker)][parameter]) {
    throw Error(ExitCode::kBug, "a gradient was complete twice in one backward pass");
  }
  Count(worker, parameter);
  SendReady();
  sent_early_ = static_cast<int64_t>(next_);
}

void GradientBuckets::ReadyAll(int worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Bucket& bucket : buckets_) {
    for (const size_t parameter : bucket.parameters) Count(worker, parameter);
  }
  SendReady();
}

// In the buckets' order, which is the same in all ranks.
void GradientBuckets::SendReady() {
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) Send(buckets_[next_++]);
}

void GradientBuckets::Send(Bucket& bucket) {
  const at::NoGradGuard no_grad;
  for (const size_t parameter : bucket.parameters) merge_(parameter);
  bucket.pending = collectives_.BeginSum(bucket.sum);
}

void GradientBuckets::Finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (next_ < buckets_.size()) {
    Bucket& bucket = buckets_[next_++];
    bucket.pending = collectives_.BeginSum(bucket.sum);
  }
  for (Bucket& bucket : buckets_) bucket.pending->Wait();
}

}  // namespace gpuctl::trainer
