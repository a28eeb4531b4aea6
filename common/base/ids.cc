#include "common/base/ids.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
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

// What getentropy gives at most in one call.
constexpr size_t kMostEntropy = 256;

// std::random_device takes what libstdc++ prefers, which may be an instruction that costs 20 us in
// a virtual machine. It is for kernels before Linux 3.17, which have no getrandom.
void FillRandomly(std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const size_t count = std::min(bytes.size() - done, kMostEntropy);
    if (getentropy(bytes.data() + done, count) != 0) {
      std::random_device source;
      for (; done < bytes.size(); ++done) bytes[done] = static_cast<char>(source());
      return;
    }
    done += count;
  }
}

}  // namespace

std::string RandomHex(int bytes) {
  std::string random(static_cast<size_t>(bytes), '\0');
  FillRandomly(random);
  return absl::BytesToHexString(random);
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
