#include "trainer/base/background_sha256.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace gpuctl::trainer {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr size_t kMostPieces = 16;

}  // namespace

BackgroundSha256::~BackgroundSha256() { End(); }

void BackgroundSha256::Update(const void* bytes, size_t size) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const size_t count = std::min(size, kPieceBytes - begun_.size());
    if (count == kPieceBytes && begun_.capacity() < kPieceBytes) begun_.reserve(kPieceBytes);
    begun_.append(next, count);
    next += count;
    size -= count;
    if (begun_.size() == kPieceBytes) Give();
  }
}

// Hands over the piece that is full, and takes the memory of one that is done.
void BackgroundSha256::Give() {
  if (!thread_.joinable() && !threadless_) {
    try {
      thread_ = std::thread([this] { Serve(); });
    } catch (const std::system_error&) {
      threadless_ = true;
    }
  }
  if (threadless_) {
    digest_.Update(begun_.data(), begun_.size());
    begun_.clear();
    return;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return pieces_.size() < kMostPieces; });
  pieces_.push_back(std::exchange(begun_, {}));
  if (!used_.empty()) {
    begun_ = std::move(used_.back());
    used_.pop_back();
  }
  changed_.notify_all();
}

void BackgroundSha256::Serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ended_ || !pieces_.empty(); });
    if (pieces_.empty()) return;
    std::string piece = std::move(pieces_.front());
    pieces_.pop_front();
    changed_.notify_all();
    lock.unlock();
    digest_.Update(piece.data(), piece.size());
    piece.clear();
    lock.lock();
    used_.push_back(std::move(piece));
  }
}

void BackgroundSha256::End() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::string BackgroundSha256::Hex() {
  End();
  digest_.Update(begun_.data(), begun_.size());
  return digest_.Hex();
}

}  // namespace gpuctl::trainer
