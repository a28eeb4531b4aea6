// How much a work directory comes to, and where in it the bulk lies.
#ifndef GPUCTL_CLIENT_WORKDIR_WORK_SIZE_H_
#define GPUCTL_CLIENT_WORKDIR_WORK_SIZE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// What is sent without asking.
constexpr int64_t kMaxUnaskedFiles = 10'000;
constexpr int64_t kMaxUnaskedBytes = 1'000'000'000;

// Counts files in any order. Takes the same time for each, and memory for a few thousand
// directories at most: what lies deeper, or comes later, counts for the nearest one above it.
class WorkSize {
 public:
  void Add(absl::string_view path, int64_t bytes);

  int64_t files() const { return all_.files; }
  int64_t bytes() const { return all_.bytes; }
  // Either limit is passed.
  bool IsLarge() const { return files() > kMaxUnaskedFiles || bytes() > kMaxUnaskedBytes; }

  struct Offender {
    std::string path;  // a directory's ends in "/"
    int64_t files = 1, bytes = 0;
  };
  // The up to three places where most of it lies, largest first: by bytes, or by files where only
  // these are too many. A directory is named in place of the one around it when it has most of
  // that one's share, and so is a single file.
  std::vector<Offender> Largest() const;
  // "1.25 MB in 40 files"; and where it is large "53.2 GB in 12345 files; the largest: data/raw/
  // (48.1 GB in 12 files), big.bin (3.00 GB)".
  std::string Describe() const;

 private:
  struct Totals {
    int64_t files = 0, bytes = 0;
  };
  using Directories = std::map<std::string, Totals, std::less<>>;

  int64_t Measure(int64_t files, int64_t bytes) const;
  Offender Narrow(Offender place) const;

  Totals all_;
  Directories directories_;                             // with all below them, by path with a slash
  std::vector<std::pair<int64_t, std::string>> files_;  // the largest ones, in no order
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORKDIR_WORK_SIZE_H_
