#include "provisioning/http/rate_bucket.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxFileBytes = 64 << 10;
// The number of tries for the lock. Holders need the file for less than a millisecond; a suspended
// holder must not stop us.
constexpr int kLockAttempts = 100;
constexpr absl::Duration kLockPause = absl::Milliseconds(10);
// The longest possible queue. A longer one means that the file is wrong.
constexpr absl::Duration kLongestQueue = absl::Minutes(10);

std::optional<UniqueFd> LockFile(const std::string& path, Clock& clock) {
  bool made_directory = false;
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    absl::StatusOr<UniqueFd> fd = TryLock(path);
    if (fd.ok()) return *std::move(fd);
    if (absl::IsNotFound(fd.status()) && !made_directory) {
      made_directory = true;
      if (!MakeDirectories(DirName(path)).ok()) return std::nullopt;
      continue;
    }
    if (!absl::IsUnavailable(fd.status())) return std::nullopt;
    clock.SleepFor(kLockPause);
  }
  return std::nullopt;
}

// Returns the buckets of this boot; none when the file cannot be understood.
nlohmann::json ReadBuckets(int fd, const std::string& boot) {
  std::string text(kMaxFileBytes, '\0');
  const ssize_t size = pread(fd, text.data(), text.size(), 0);
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("boot") || json["boot"] != boot ||
      !json.contains("full_at_ms") || !json["full_at_ms"].is_object()) {
    return nlohmann::json::object();
  }
  return json["full_at_ms"];
}

bool WriteBuckets(int fd, const std::string& boot, const nlohmann::json& full_at_ms) {
  const nlohmann::json json = {{"boot", boot}, {"full_at_ms", full_at_ms}};
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return file_ops::Truncate(fd, 0) == 0 &&
         file_ops::PWrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

}  // namespace

RateBuckets::RateBuckets(std::string path, RateLimits limits, Clock& clock)
    : path_(std::move(path)), limits_(std::move(limits)), clock_(clock), boot_(BootId()) {}

std::vector<RateBuckets::Bucket> RateBuckets::BucketsOf(absl::string_view rate_class) const {
  std::vector<Bucket> buckets;
  if (limits_.all.interval > absl::ZeroDuration()) buckets.push_back({"", &limits_.all});
  if (rate_class.empty()) return buckets;
  const auto found = limits_.classes.find(std::string(rate_class));
  const RateLimit& limit = found == limits_.classes.end() ? limits_.other : found->second;
  if (limit.interval > absl::ZeroDuration()) buckets.push_back({std::string(rate_class), &limit});
  return buckets;
}

template <typename Change>
bool RateBuckets::Update(const std::vector<Bucket>& buckets, Change change) {
  if (buckets.empty()) return true;
  MutexLock lock(mutex_);
  const std::optional<UniqueFd> fd = LockFile(path_, clock_);
  if (!fd.has_value()) return false;
  nlohmann::json full_at_ms = ReadBuckets(fd->get(), boot_);
  const absl::Duration now = clock_.SinceBoot();
  std::vector<absl::Duration> full_at;
  for (const Bucket& bucket : buckets) {
    absl::Duration full = now;
    if (const auto entry = full_at_ms.find(bucket.name);
        entry != full_at_ms.end() && entry->is_number_integer()) {
      full = std::max(now, absl::Milliseconds(entry->get<int64_t>()));
    }
    if (full > now + kLongestQueue) full = now + bucket.limit->interval * bucket.limit->burst;
    full_at.push_back(full);
  }
  change(now, full_at);
  for (size_t i = 0; i < buckets.size(); ++i) {
    full_at_ms[buckets[i].name] = absl::ToInt64Milliseconds(full_at[i]);
  }
  return WriteBuckets(fd->get(), boot_, full_at_ms);
}

absl::Duration RateBuckets::Take(absl::string_view rate_class, absl::Duration patience) {
  const std::vector<Bucket> buckets = BucketsOf(rate_class);
  absl::Duration wait = absl::ZeroDuration();
  const auto take = [&](absl::Duration now, std::vector<absl::Duration>& full_at) {
    for (size_t i = 0; i < buckets.size(); ++i) {
      const RateLimit& limit = *buckets[i].limit;
      wait = std::max(wait, full_at[i] - (limit.burst - 1) * limit.interval - now);
    }
    if (wait > patience) return;
    for (size_t i = 0; i < buckets.size(); ++i) full_at[i] += buckets[i].limit->interval;
  };
  if (Update(buckets, take)) return wait;
  for (const Bucket& bucket : buckets) wait = std::max(wait, bucket.limit->interval);
  return wait;
}

void RateBuckets::Refused(absl::string_view rate_class, absl::Duration wait) {
  std::vector<Bucket> buckets = BucketsOf(rate_class);
  // The provider does not say what it counted: take the narrower bucket if there is one.
  if (buckets.size() > 1) buckets.erase(buckets.begin());
  Update(buckets, [&](absl::Duration now, std::vector<absl::Duration>& full_at) {
    for (size_t i = 0; i < buckets.size(); ++i) {
      const RateLimit& limit = *buckets[i].limit;
      const absl::Duration pause = std::min(std::max(wait, limit.penalty), kLongestQueue / 2);
      full_at[i] = std::max(full_at[i], now + pause + (limit.burst - 1) * limit.interval);
    }
  });
}

}  // namespace gpuctl
