#include "common/base/path_pattern.h"

#include <fnmatch.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

namespace {

// True for a pattern that ends with a component "**".
bool EndsWithStars(const std::string& pattern) {
  return pattern == "**" || absl::EndsWith(pattern, "/**");
}

}  // namespace

bool MatchesPattern(const std::string& pattern, const std::string& path) {
  if (EndsWithStars(pattern)) return MatchesPattern(absl::StrCat(pattern, "/*"), path);
  if (fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0) return true;
  const size_t stars = pattern.find("**/");
  if (stars == std::string::npos) return false;
  const std::string before = pattern.substr(0, stars);
  const std::string after = pattern.substr(stars + 3);
  // "**/" stands for nothing, or for any number of whole directories.
  if (MatchesPattern(before + after, path)) return true;
  for (size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string head = path.substr(0, slash + 1);
    if (head.size() > before.size() && absl::StartsWith(head, before) &&
        MatchesPattern(after, path.substr(slash + 1))) {
      return true;
    }
  }
  return false;
}

std::string FixedDirectory(const std::string& pattern) {
  const size_t wild = std::min(pattern.find_first_of("*?[\\"), pattern.size());
  const size_t slash = pattern.substr(0, wild).rfind('/');
  return slash == std::string::npos ? "" : pattern.substr(0, slash);
}

bool MayMatchBelow(const std::string& pattern, const std::string& path) {
  const std::string fixed = FixedDirectory(pattern);
  if (absl::StartsWith(absl::StrCat(fixed, "/"), absl::StrCat(path, "/"))) return true;
  if (!fixed.empty() && !absl::StartsWith(path, absl::StrCat(fixed, "/"))) return false;
  if (absl::StrContains(pattern, "**/") || EndsWithStars(pattern)) return true;
  return std::count(path.begin(), path.end(), '/') <
         std::count(pattern.begin(), pattern.end(), '/');
}

bool NamesPlace(const std::string& pattern, const std::string& path) {
  const std::vector<std::string> wanted = absl::StrSplit(pattern, '/');
  const std::vector<std::string> names = absl::StrSplit(path, '/');
  if (names.size() > wanted.size()) return false;
  for (size_t i = 0; i < names.size(); ++i) {
    if (wanted[i] == "**" || fnmatch(wanted[i].c_str(), names[i].c_str(), 0) != 0) return false;
  }
  return true;
}

}  // namespace gpuctl
