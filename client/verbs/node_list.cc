#include "client/verbs/node_list.h"

#include <sys/stat.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/base/run_program.h"
#include "client/programs/node_bundle.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAnswerWithin = absl::Seconds(10);

// Reads "gpuctl-agent 0.1.0 linux-x86_64, api level 2" of an agent that runs here.
void AskVersion(const PlatformPrograms& programs, ListedPrograms& listed) {
  if (programs.platform != OwnPlatform()) return;
  const absl::StatusOr<ProgramEnd> end = RunWithin(kAnswerWithin, {programs.agent, "--version"});
  if (!end.ok() || end->exit_code != 0) return;
  const std::vector<std::string> words =
      absl::StrSplit(end->output, absl::ByAnyChar(" ,\n"), absl::SkipEmpty());
  int level = 0;
  if (words.size() != 6 || words[0] != "gpuctl-agent" || !absl::SimpleAtoi(words[5], &level)) {
    return;
  }
  listed.version = words[1];
  listed.api_level = level;
}

int64_t SizeOf(const std::string& path) {
  struct stat info {};
  return !path.empty() && stat(path.c_str(), &info) == 0 ? info.st_size : 0;
}

}  // namespace

std::vector<ListedPrograms> ListNodePrograms(const NodePrograms& programs) {
  std::vector<ListedPrograms> list;
  for (const NodePlatform platform : programs.platforms()) {
    const PlatformPrograms& found = *programs.For(platform);
    ListedPrograms& listed = list.emplace_back();
    listed.platform = platform;
    listed.dir = found.dir;
    listed.fetched = found.fetched;
    listed.has_cuda_check = !found.cuda_check.empty();
    for (const std::string& path : {found.agent, found.shim, found.cuda_check, found.roots}) {
      listed.bytes += SizeOf(path);
    }
    listed.has_manifest = found.manifest.has_value();
    listed.match = CheckPrograms(found);
    if (listed.has_manifest && listed.match.ok()) {
      listed.version = found.manifest->version;
      listed.api_level = found.manifest->api_level;
    } else {
      AskVersion(found, listed);
    }
  }
  return list;
}

std::vector<NodePlatform> MissingPlatforms(const NodePrograms& programs) {
  std::vector<NodePlatform> missing;
  for (const NodePlatform platform : LinuxPlatforms()) {
    if (programs.For(platform) == nullptr) missing.push_back(platform);
  }
  return missing;
}

std::string DescribeVersion(const ListedPrograms& programs) {
  if (programs.version.empty()) return "";
  return absl::StrCat(programs.version, ", api level ", programs.api_level.value_or(0));
}

}  // namespace gpuctl
