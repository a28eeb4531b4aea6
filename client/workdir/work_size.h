// The size of a work directory, and its largest parts.
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

// Limits up to which a work directory is sent without asking: files, and bytes.
constexpr int64_t kMaxUnaskedFiles = 10'000;
constexpr int64_t kMaxUnaskedBytes = 1'000'000'000;

// Counts files in any order. Takes the same time for each, and memory for a few thousand
// directories at most: a file that lies deeper, or comes later, counts for the nearest counted
// directory above it.
class WorkSize {
 public:
  void Add(absl::string_view path, int64_t bytes);

  int64_t files() const { return all_.files; }
  int64_t bytes() const { return all_.bytes; }
  // True when either limit is exceeded.
  bool IsLarge() const { return files() > kMaxUnaskedFiles || bytes() > kMaxUnaskedBytes; }

  struct Offender {
    std::string path;  // a directory's ends in "/"
    int64_t files = 1, bytes = 0;
  };
  // Returns the up to three largest places, largest first: by bytes, or by files when only these
  // are too many. A directory, or a single file, replaces the directory around it when it has most
  // of that one's size.
  std::vector<Offender> Largest() const;
  // Returns "1.25 MB in 40 files"; when it is large "53.2 GB in 12345 files; the largest: data/raw/
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
  Directories directories_;  // totals with everything below, by path with a slash
  std::vector<std::pair<int64_t, std::string>> files_;  // the largest files, in no order
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORKDIR_WORK_SIZE_H_
