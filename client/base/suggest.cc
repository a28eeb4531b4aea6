#include "client/base/suggest.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gpuctl {

int EditDistance(absl::string_view a, absl::string_view b) {
  // Longer words than any of gpuctl's names are not compared character by character.
  constexpr size_t kLongest = 64;
  if (a.size() > kLongest || b.size() > kLongest) return std::numeric_limits<int>::max();
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = static_cast<int>(j);
  const auto same = [&](size_t i, size_t j) {
    return absl::ascii_tolower(static_cast<unsigned char>(a[i])) ==
           absl::ascii_tolower(static_cast<unsigned char>(b[j]));
  };
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substitution = cost[i - 1][j - 1] + (same(i - 1, j - 1) ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, substitution});
      if (i > 1 && j > 1 && same(i - 1, j - 2) && same(i - 2, j - 1)) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates) {
  int best_distance = std::numeric_limits<int>::max();
  std::string best;
  int begins = 0;
  std::string begun;
  for (const std::string& candidate : candidates) {
    const int distance = EditDistance(word, candidate);
    const int allowed = std::max(1, static_cast<int>(std::max(word.size(), candidate.size())) / 3);
    if (distance <= allowed && distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
    const bool longer = candidate.size() >= 3 && absl::StartsWithIgnoreCase(word, candidate);
    if (longer || (!word.empty() && absl::StartsWithIgnoreCase(candidate, word))) {
      ++begins;
      begun = candidate;
    }
  }
  if (best.empty() && begins == 1) return begun;
  return best;
}

std::string DidYouMean(absl::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? "" : absl::StrCat(" (did you mean \"", nearest, "\"?)");
}

std::string DidYouMeanOneOf(absl::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kMost = 3;
  std::vector<std::pair<int, std::string>> near;
  for (const std::string& candidate : candidates) {
    const absl::string_view whole = candidate;
    const absl::string_view front = whole.substr(0, whole.rfind('-'));
    const int distance = std::min(EditDistance(word, whole), EditDistance(word, front));
    const int allowed = std::max(1, static_cast<int>(std::max(word.size(), whole.size())) / 3);
    if (distance <= allowed) near.emplace_back(distance, candidate);
  }
  if (near.empty()) return DidYouMean(word, candidates);
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  near.resize(std::min(near.size(), kMost));
  std::string text = " (did you mean ";
  for (size_t i = 0; i < near.size(); ++i) {
    absl::StrAppend(&text,
                    i == 0                 ? ""
                    : i + 1 == near.size() ? " or "
                                           : ", ",
                    "\"", near[i].second, "\"");
  }
  return absl::StrCat(text, "?)");
}

}  // namespace gpuctl
