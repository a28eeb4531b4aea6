#include "client/programs/node_programs.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

bool IsProgram(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

// Returns the first of these paths that is there; "" for none.
std::string FirstThere(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (PathExists(path)) return path;
  }
  return "";
}

// Returns the manifest that says what the programs of `platform` in `folder` are.
std::optional<NodeManifest> ManifestFor(NodePlatform platform, const std::string& folder,
                                        const std::optional<NodeManifest>& built_in) {
  if (built_in.has_value()) {
    return built_in->For(platform) != nullptr ? built_in : std::nullopt;
  }
  constexpr int64_t kMostBytes = 1 << 20;
  const auto text = ReadFileToString(JoinPath(folder, "manifest.json"), kMostBytes);
  if (!text.ok()) return std::nullopt;
  absl::StatusOr<NodeManifest> manifest = ParseNodeManifest(*text);
  if (!manifest.ok() || manifest->For(platform) == nullptr) return std::nullopt;
  return *std::move(manifest);
}

}  // namespace

std::string FetchedProgramsDir() {
  const absl::StatusOr<ClientPaths> paths = ClientPaths::FromEnvironment();
  if (!paths.ok()) return "";
  return JoinPath(JoinPath(paths->cache_dir, "node"), ClientVersion());
}

NodePrograms NodePrograms::Find() {
  NodeProgramPlaces places;
  if (const char* given = std::getenv("GPUCTL_NODE_DIR"); given != nullptr) places.given = given;
  places.bin_dir = DirName(ExecutablePath());
  places.fetched = FetchedProgramsDir();
  places.manifest = BuiltInManifest();
  return FindIn(places);
}

NodePrograms NodePrograms::FindIn(const NodeProgramPlaces& places) {
  NodePrograms found;
  found.LookInto(places.given, /*fetched=*/false, places);
  if (!places.bin_dir.empty()) {
    const std::string prefix = DirName(places.bin_dir);
    found.LookInto(JoinPath(places.bin_dir, "node"), /*fetched=*/false, places);
    found.LookInto(JoinPath(prefix, "libexec/gpuctl/node"), /*fetched=*/false, places);
  }
  // What a build's version says is fetched may be older than the build. A release's is verified.
  const bool is_build = !places.manifest.has_value();
  if (is_build && !places.bin_dir.empty()) found.LookBeside(places);
  found.LookInto(places.fetched, /*fetched=*/true, places);
  if (!is_build && !places.bin_dir.empty()) found.LookBeside(places);
  return found;
}

void NodePrograms::LookInto(const std::string& folder, bool fetched,
                            const NodeProgramPlaces& places) {
  if (folder.empty()) return;
  absl::StrAppend(&searched_, searched_.empty() ? "" : ", ", folder);
  for (const NodePlatform platform : AllPlatforms()) {
    if (For(platform) != nullptr) continue;
    const std::string dir = JoinPath(folder, PlatformName(platform));
    PlatformPrograms programs;
    if (!Take(dir, platform, programs)) continue;
    programs.roots = FirstThere({JoinPath(dir, "roots.pem"), JoinPath(folder, "roots.pem"),
                                 JoinPath(places.bin_dir, "roots.pem")});
    programs.fetched = fetched;
    programs.manifest = ManifestFor(platform, folder, places.manifest);
    by_platform_[platform] = std::move(programs);
  }
}

// Takes the programs in `dir` if agent and shim are there and every program is for `platform`.
bool NodePrograms::Take(const std::string& dir, NodePlatform platform, PlatformPrograms& programs) {
  programs.platform = platform;
  programs.dir = dir;
  programs.agent = JoinPath(dir, "gpuctl-agent");
  programs.shim = JoinPath(dir, "gpuctl-shim");
  programs.cuda_check = JoinPath(dir, "gpuctl-cuda-check");
  if (!IsProgram(programs.cuda_check)) programs.cuda_check.clear();
  if (!IsProgram(programs.agent) || !IsProgram(programs.shim)) return false;
  for (const std::string& program : {programs.agent, programs.shim, programs.cuda_check}) {
    if (program.empty()) continue;
    const absl::StatusOr<NodePlatform> made_for = PlatformOfProgramFile(program);
    if (made_for.ok() && *made_for == platform) continue;
    refused_.push_back(made_for.ok()
                           ? absl::StrCat(program, " is a program for ", PlatformName(*made_for),
                                          ", not for ", PlatformName(platform))
                           : std::string(made_for.status().message()));
    return false;
  }
  return true;
}

// Takes the programs beside gpuctl, which count for the platform that their own headers name.
void NodePrograms::LookBeside(const NodeProgramPlaces& places) {
  for (const std::string& dir :
       {places.bin_dir, JoinPath(DirName(places.bin_dir), "libexec/gpuctl")}) {
    absl::StrAppend(&searched_, searched_.empty() ? "" : ", ", dir);
    const std::string agent = JoinPath(dir, "gpuctl-agent");
    if (!IsProgram(agent)) continue;
    const absl::StatusOr<NodePlatform> platform = PlatformOfProgramFile(agent);
    if (!platform.ok()) {
      refused_.push_back(std::string(platform.status().message()));
      continue;
    }
    if (For(*platform) != nullptr) continue;
    PlatformPrograms programs;
    if (!Take(dir, *platform, programs)) continue;
    programs.roots = FirstThere({JoinPath(dir, "roots.pem"), JoinPath(dir, "node/roots.pem")});
    programs.manifest = ManifestFor(*platform, JoinPath(dir, "node"), places.manifest);
    by_platform_[*platform] = std::move(programs);
  }
}

const PlatformPrograms* NodePrograms::For(NodePlatform platform) const {
  const auto found = by_platform_.find(platform);
  return found == by_platform_.end() ? nullptr : &found->second;
}

std::vector<NodePlatform> NodePrograms::platforms() const {
  std::vector<NodePlatform> all;
  for (const auto& [platform, programs] : by_platform_) all.push_back(platform);
  return all;
}

void NodePrograms::Add(PlatformPrograms programs) {
  by_platform_[programs.platform] = std::move(programs);
}

absl::Status NodePrograms::Missing(NodePlatform platform) const {
  const std::string there =
      by_platform_.empty()
          ? "there are no node programs"
          : absl::StrCat("there are node programs for ", PlatformNames(platforms()), " only");
  std::string message = absl::StrCat("it is ", PlatformTitle(platform), ", and ", there);
  for (const std::string& refused : refused_) absl::StrAppend(&message, "; ", refused);
  return WithExitCode(WithHint(absl::FailedPreconditionError(message), FetchHint({platform})),
                      kExitUsage);
}

std::string FetchHint(const std::vector<NodePlatform>& platforms) {
  std::string words;
  if (platforms == std::vector<NodePlatform>{NodePlatform::kMacArm64}) {
    return "GPUCTL_NODE_DIR names a folder with macos-arm64/gpuctl-agent and gpuctl-shim; building "
           "gpuctl on a Mac makes them";
  }
  for (const NodePlatform platform : platforms) {
    absl::StrAppend(&words, " ", PlatformName(platform));
  }
  if (!ReleaseAddress().empty()) return absl::StrCat("gpuctl node fetch", words);
  return absl::StrCat("gpuctl node fetch", words,
                      " --from ARCHIVE takes them from a file or an address; deploy/node-programs",
                      words, ", in gpuctl's sources, makes them");
}

}  // namespace gpuctl
