#include "client/workdir/work_size.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/quantity.h"

namespace gpuctl {
namespace {

constexpr int kMaxDepth = 4;
constexpr size_t kMaxDirectories = 4096;
constexpr size_t kNamed = 3;

std::string CountFiles(int64_t files) {
  return absl::StrCat(files, files == 1 ? " file" : " files");
}

// True when `part` is most of `whole`: more than four fifths.
bool IsMostOf(int64_t part, int64_t whole) { return part > whole / 5 * 4; }

}  // namespace

void WorkSize::Add(absl::string_view path, int64_t bytes) {
  const auto count = [bytes](Totals& totals) {
    ++totals.files;
    totals.bytes += bytes;
  };
  count(all_);
  size_t slash = path.find('/');
  for (int depth = 0; slash != absl::string_view::npos && depth < kMaxDepth; ++depth) {
    const absl::string_view directory = path.substr(0, slash + 1);
    auto found = directories_.find(directory);
    if (found == directories_.end()) {
      if (directories_.size() >= kMaxDirectories) break;
      found = directories_.emplace(std::string(directory), Totals()).first;
    }
    count(found->second);
    slash = path.find('/', slash + 1);
  }
  if (files_.size() < kNamed) {
    files_.emplace_back(bytes, path);
    return;
  }
  const auto smallest = std::min_element(files_.begin(), files_.end());
  if (bytes > smallest->first) *smallest = {bytes, std::string(path)};
}

int64_t WorkSize::Measure(int64_t files, int64_t bytes) const {
  const bool only_many = this->files() > kMaxUnaskedFiles && this->bytes() <= kMaxUnaskedBytes;
  return only_many ? files : bytes;
}

// Returns the innermost place with most of the size of `place`, a directory.
WorkSize::Offender WorkSize::Narrow(Offender place) const {
  const int64_t whole = Measure(place.files, place.bytes);
  for (auto inner = directories_.upper_bound(place.path);
       inner != directories_.end() && absl::StartsWith(inner->first, place.path); ++inner) {
    // A directory comes before those in it, so the last one that fits is the innermost.
    if (IsMostOf(Measure(inner->second.files, inner->second.bytes), whole)) {
      place = {inner->first, inner->second.files, inner->second.bytes};
    }
  }
  for (const auto& [bytes, path] : files_) {
    if (absl::StartsWith(path, place.path) && IsMostOf(Measure(1, bytes), whole)) {
      return {path, 1, bytes};
    }
  }
  return place;
}

std::vector<WorkSize::Offender> WorkSize::Largest() const {
  std::vector<Offender> places;
  for (const auto& [path, totals] : directories_) {
    if (path.find('/') == path.size() - 1) {
      places.push_back(Narrow({path, totals.files, totals.bytes}));
    }
  }
  for (const auto& [bytes, path] : files_) {
    if (!absl::StrContains(path, '/')) places.push_back({path, 1, bytes});
  }
  std::sort(places.begin(), places.end(), [this](const Offender& a, const Offender& b) {
    const int64_t more = Measure(a.files, a.bytes) - Measure(b.files, b.bytes);
    return more != 0 ? more > 0 : a.path < b.path;
  });
  if (places.size() > kNamed) places.resize(kNamed);
  return places;
}

std::string WorkSize::Describe() const {
  std::vector<std::string> named;
  for (const Offender& place : IsLarge() ? Largest() : std::vector<Offender>()) {
    const bool directory = absl::EndsWith(place.path, "/");
    named.push_back(absl::StrCat(place.path, " (", FormatBytes(place.bytes),
                                 directory ? absl::StrCat(" in ", CountFiles(place.files)) : "",
                                 ")"));
  }
  return absl::StrCat(FormatBytes(bytes()), " in ", CountFiles(files()),
                      named.empty() ? "" : "; the largest: ", absl::StrJoin(named, ", "));
}

}  // namespace gpuctl
