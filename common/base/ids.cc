#include "common/base/ids.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr std::array<absl::string_view, 32> kAdjectives = {
    "amber", "bold",  "brave", "brisk", "calm",  "clear", "coral", "crisp",
    "dusky", "early", "fair",  "fleet", "fresh", "glad",  "green", "hazel",
    "ivory", "jade",  "keen",  "light", "lucid", "mild",  "misty", "noble",
    "olive", "plain", "quick", "ruby",  "sunny", "swift", "tidy",  "warm"};
constexpr std::array<absl::string_view, 32> kAnimals = {
    "badger", "bear",   "bison", "crane", "crow",   "deer",  "dove",  "eagle",
    "ermine", "falcon", "finch", "fox",   "gecko",  "hare",  "heron", "ibis",
    "jay",    "koala",  "lark",  "lynx",  "marten", "mole",  "moth",  "newt",
    "otter",  "owl",    "panda", "raven", "seal",   "stork", "swan",  "wren"};

}  // namespace

std::string RandomHex(int bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device source;
  std::string hex;
  hex.reserve(static_cast<size_t>(bytes) * 2);
  for (int i = 0; i < bytes; ++i) {
    const unsigned value = source() & 0xff;
    hex += kDigits[value >> 4];
    hex += kDigits[value & 15];
  }
  return hex;
}

std::string NewRunId() { return absl::StrCat("r-", RandomHex(6)); }
std::string NewJobId() { return absl::StrCat("j-", RandomHex(6)); }

bool IsValidId(absl::string_view id) {
  return !id.empty() && id.size() <= 64 && id.front() != '-' &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return absl::ascii_islower(static_cast<unsigned char>(c)) ||
                  absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
         });
}

std::string NewReadableName() {
  std::random_device source;
  return absl::StrCat(kAdjectives[source() % kAdjectives.size()], "-",
                      kAnimals[source() % kAnimals.size()], "-", source() % 100);
}

}  // namespace gpuctl
