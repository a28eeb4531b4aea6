// The programs for nodes that this laptop has, for each platform, and where they are from.
#ifndef GPUCTL_CLIENT_PROGRAMS_NODE_PROGRAMS_H_
#define GPUCTL_CLIENT_PROGRAMS_NODE_PROGRAMS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/programs/node_manifest.h"
#include "client/programs/node_platform.h"

namespace gpuctl {

// The programs of one platform; absolute paths.
struct PlatformPrograms {
  NodePlatform platform = NodePlatform::kLinuxX86_64;
  std::string dir;
  std::string agent;
  std::string shim;
  std::string cuda_check;  // "" when there is none: then CUDA is not tried on rented machines
  std::string roots;       // root certificates; "" when there are none
  // True for what `gpuctl node fetch` brought: it must be what the manifest says.
  bool fetched = false;
  // The release that they belong to: the manifest that gpuctl was built with, else the one in their
  // folder. Absent for own builds, and for a manifest without their platform.
  std::optional<NodeManifest> manifest;
};

// The folders to look into; "" for one that there is not.
struct NodeProgramPlaces {
  std::string given;                     // $GPUCTL_NODE_DIR
  std::string bin_dir;                   // gpuctl's own directory
  std::string fetched;                   // <cache>/node/<version>
  std::optional<NodeManifest> manifest;  // the one that gpuctl was built with
};

class NodePrograms {
 public:
  // Looks into $GPUCTL_NODE_DIR, node beside this program, <prefix>/libexec/gpuctl/node,
  // <cache>/node/<version>, and for programs beside this program or in <prefix>/libexec/gpuctl. The
  // first folder with agent and shim of a platform serves it. Reads the beginnings of files only.
  static NodePrograms Find();
  static NodePrograms FindIn(const NodeProgramPlaces& places);

  // Returns the programs for `platform`; null when there are none.
  const PlatformPrograms* For(NodePlatform platform) const;
  std::vector<NodePlatform> platforms() const;

  // Adds programs, or replaces those of the same platform.
  void Add(PlatformPrograms programs);

  // Returns what was found and not taken, each with its path: programs for another machine than
  // their folder says.
  const std::vector<std::string>& refused() const { return refused_; }
  // Returns the folders that Find looked into, for messages.
  const std::string& searched() const { return searched_; }

  // Returns the error for a machine of `platform`, for which there are no programs: "it is Linux
  // aarch64, and there are node programs for linux-x86_64 only", with the command that brings them
  // as its hint and the exit code of usage errors.
  absl::Status Missing(NodePlatform platform) const;

 private:
  void LookInto(const std::string& folder, bool fetched, const NodeProgramPlaces& places);
  void LookBeside(const NodeProgramPlaces& places);
  bool Take(const std::string& dir, NodePlatform platform, PlatformPrograms& programs);

  std::map<NodePlatform, PlatformPrograms> by_platform_;
  std::vector<std::string> refused_;
  std::string searched_;
};

// Returns the command that brings the programs for `platforms`: the fetch of a release, else how to
// make them.
std::string FetchHint(const std::vector<NodePlatform>& platforms);

// Returns <cache>/node/<version>, where `gpuctl node fetch` puts programs; "" when there is no
// cache directory.
std::string FetchedProgramsDir();

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PROGRAMS_NODE_PROGRAMS_H_
