#include "client/workdir/data_trees.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/ignore/secret_files.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/tree/hash_cache.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

// Returns `path` relative to `directory`; "" when it is not below.
std::string Below(const std::string& directory, const std::string& path) {
  const std::string prefix = absl::StrCat(directory, "/");
  return absl::StartsWith(path, prefix) ? path.substr(prefix.size()) : "";
}

// Takes the manifest without write permissions, because the node's jobs share these files.
void TakeWithoutWriting(const Manifest& manifest, DataTree& tree) {
  for (FileEntry entry : manifest) {
    if (entry.kind() == FileEntry::KIND_FILE) entry.set_mode(entry.mode() & ~0222u);
    tree.manifest.Append(entry);
  }
  tree.digest = tree.manifest.Digest();
}

}  // namespace

absl::StatusOr<DataTree> ScanDataTree(CommandContext& context, const std::string& local,
                                      const std::string& path,
                                      std::vector<std::string>* held_back) {
  char resolved[PATH_MAX];
  if (realpath(local.c_str(), resolved) == nullptr || !IsDirectory(resolved)) {
    return UsageError(absl::StrCat("data ", local, ": no such directory"),
                      "it is relative to the run file, or to here without one");
  }
  DataTree tree;
  tree.source = resolved;
  tree.path = path;
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  RETURN_IF_ERROR(MakeDirectories(paths.hash_cache()));
  HashCache cache(paths.DataHashes(tree.source), context.clock);
  ScanOptions options;
  options.cache = &cache;
  ScanNotes notes;
  options.notes = &notes;
  if (held_back != nullptr) {
    options.skip = [held_back](const std::string& file, const struct stat& info) {
      if (S_ISDIR(info.st_mode) || !LooksLikeSecret(file)) return false;
      held_back->push_back(file);
      return true;
    };
  }
  absl::StatusOr<Manifest> manifest = ScanTree(tree.source, options);
  if (!manifest.ok()) {
    return WithExitCode(WithHint(manifest.status(), "make it readable"), kExitUsage);
  }
  (void)cache.Save();  // losing it costs time only
  if (!notes.grown.empty()) context.Warn(DescribeGrown(notes.grown));
  TakeWithoutWriting(*manifest, tree);
  return tree;
}

absl::StatusOr<DataTree> ScanDataFile(const std::string& local, const std::string& path) {
  DataTree tree;
  tree.source = DirName(local);
  tree.path = path;
  UniqueFd directory(file_ops::Open(tree.source, O_RDONLY | O_DIRECTORY));
  if (!directory.valid()) return ErrnoStatus(errno, absl::StrCat("open ", tree.source));
  ASSIGN_OR_RETURN(const Manifest manifest, ScanFileAt(directory.get(), BaseName(local)));
  TakeWithoutWriting(manifest, tree);
  return tree;
}

absl::StatusOr<DataTree> ScanGatheredFiles(CommandContext& context,
                                           const std::vector<GatheredFile>& files,
                                           const std::string& path, const std::string& cache,
                                           FileModes modes) {
  // The files lie in many places; none is copied here.
  std::vector<std::string> places;
  for (const GatheredFile& file : files) places.push_back(file.source.substr(1));
  std::sort(places.begin(), places.end(), PathLess);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  RETURN_IF_ERROR(MakeDirectories(paths.hash_cache()));
  HashCache hashes(JoinPath(paths.hash_cache(), cache), context.clock);
  ScanOptions options;
  options.cache = &hashes;
  const UniqueFd root(file_ops::Open("/", O_RDONLY | O_DIRECTORY));
  if (!root.valid()) return ErrnoStatus(errno, "open /");
  ASSIGN_OR_RETURN(const Manifest scanned, ScanFilesAt(root.get(), "", places, options));
  (void)hashes.Save();  // losing it costs time only
  std::map<std::string, FileEntry> entries;
  for (const FileEntry& entry : scanned) entries[entry.path()] = entry;
  DataTree tree;
  tree.source = "/";
  tree.path = path;
  std::string directory;
  for (const GatheredFile& file : files) {
    if (const std::string parent(ParentPath(file.path)); parent != directory) {
      directory = parent;
      FileEntry entry;
      entry.set_path(directory);
      entry.set_kind(FileEntry::KIND_DIRECTORY);
      entry.set_mode(0755);
      tree.manifest.Append(entry);
      tree.sources.emplace_back();
    }
    const auto found = entries.find(file.source.substr(1));
    if (found == entries.end() || found->second.kind() != FileEntry::KIND_FILE) {
      return absl::AbortedError(absl::StrCat(file.source, " changed meanwhile"));
    }
    FileEntry entry = found->second;
    entry.set_path(file.path);
    // Whatever its mode here is.
    entry.set_mode(modes == FileModes::kExecutable ? 0555 : 0444);
    tree.manifest.Append(entry);
    tree.sources.push_back(found->first);
  }
  tree.digest = tree.manifest.Digest();
  return tree;
}

absl::StatusOr<std::vector<DataTree>> ScanDataTrees(CommandContext& context, const RunSpec& spec) {
  std::vector<DataTree> trees;
  for (const auto& [local, path] : spec.data) {
    std::vector<std::string> held_back;
    ASSIGN_OR_RETURN(DataTree tree, ScanDataTree(context, local, path, &held_back));
    if (!held_back.empty()) {
      std::sort(held_back.begin(), held_back.end());
      context.Warn(absl::StrCat("held back of the data ", local, ", as secrets by their names: ",
                                FirstFew(held_back), "; a copy under another name is sent"));
    }
    trees.push_back(std::move(tree));
  }
  return trees;
}

std::vector<std::string> PathsOfData(const std::vector<DataTree>& trees,
                                     const std::string& workdir) {
  std::vector<std::string> paths;
  for (const DataTree& tree : trees) {
    paths.push_back(tree.path);
    const std::string below = Below(workdir, tree.place());
    if (!below.empty()) paths.push_back(below);
  }
  return paths;
}

std::vector<std::string> PathsOfData(const gpuctl::v1::JobSpec& spec) {
  std::vector<std::string> paths;
  for (const gpuctl::v1::DataTree& tree : spec.data()) {
    paths.push_back(tree.path());
    if (!tree.workdir_path().empty()) paths.push_back(tree.workdir_path());
  }
  return paths;
}

void AddDataTrees(const std::vector<DataTree>& trees, const std::string& workdir,
                  gpuctl::v1::JobSpec& spec) {
  for (const DataTree& tree : trees) {
    gpuctl::v1::DataTree* data = spec.add_data();
    data->set_manifest_digest(tree.digest);
    data->set_path(tree.path);
    data->set_workdir_path(Below(workdir, tree.place()));
  }
}

}  // namespace gpuctl
