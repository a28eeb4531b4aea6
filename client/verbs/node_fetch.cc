#include "client/verbs/node_fetch.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/programs/node_archive.h"
#include "client/programs/node_programs.h"
#include "common/base/status_macros.h"
#include "common/files/exchange_paths.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/files/staging_dir.h"
#include "common/packing/whole_frames.h"

namespace gpuctl {
namespace {

constexpr size_t kMostUnpackedBytes = size_t{256} << 20;
constexpr int kMostRedirects = 5;
constexpr absl::Duration kDownloadWithin = absl::Minutes(20);

bool IsAddress(absl::string_view from) { return absl::StrContains(from, "://"); }

// True for https, and for a server on this computer.
bool IsSafeAddress(absl::string_view address) {
  if (absl::StartsWith(address, "https://")) return true;
  if (!absl::ConsumePrefix(&address, "http://")) return false;
  const absl::string_view authority = address.substr(0, address.find_first_of("/?#"));
  for (absl::string_view host : {"127.0.0.1", "localhost", "[::1]"}) {
    absl::string_view rest = authority;
    if (absl::ConsumePrefix(&rest, host) && (rest.empty() || rest[0] == ':')) {
      return rest.find('@') == rest.npos;
    }
  }
  return false;
}

absl::Status CheckAddress(absl::string_view address) {
  if (IsSafeAddress(address)) return absl::OkStatus();
  return UsageError(absl::StrCat("fetch node programs: ", address,
                                 " is neither an https address nor one of this computer"),
                    "give an https:// address, or download the archive and name the file");
}

std::string ArchiveName(const FetchOptions& options, NodePlatform platform) {
  if (options.manifest.has_value()) {
    if (const NodeManifest::Platform* const entry = options.manifest->For(platform)) {
      return entry->archive;
    }
  }
  return absl::StrCat("gpuctl-node-", options.version, "-", PlatformName(platform), ".tar.zst");
}

// Returns the value of a header; "" without it.
std::string HeaderOf(const HttpResponse& response, absl::string_view name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

absl::StatusOr<std::string> Download(Http& http, std::string address) {
  for (int hop = 0; hop <= kMostRedirects; ++hop) {
    RETURN_IF_ERROR(CheckAddress(address));
    HttpRequest request;
    request.method = "GET";
    request.url = address;
    request.timeout = kDownloadWithin;
    request.repeatable = true;
    const absl::StatusOr<HttpResponse> response = http.Send(request);
    if (!response.ok()) return Annotate(response.status(), absl::StrCat("fetch ", address));
    if (response->status == 200) return response->body;
    const std::string moved = HeaderOf(*response, "location");
    if (response->status < 300 || response->status > 399 || moved.empty()) {
      return WithHint(
          absl::NotFoundError(absl::StrCat("fetch ", address, ": HTTP ", response->status)),
          "--from names another file or address");
    }
    if (absl::StartsWith(moved, "/")) {
      const size_t authority = address.find("://") + 3;
      address = absl::StrCat(address.substr(0, address.find('/', authority)), moved);
    } else {
      address = moved;
    }
  }
  return absl::UnavailableError(absl::StrCat("fetch ", address, ": too many redirections"));
}

// Compares the files of an archive with the manifest's.
absl::Status CheckFiles(const std::map<std::string, ArchiveFile>& files,
                        const NodeManifest& manifest, NodePlatform platform) {
  std::map<std::string, std::string> wanted;
  for (const auto& [name, file] : manifest.For(platform)->files) wanted[name] = file.sha256;
  if (!manifest.roots_sha256.empty() && files.count("roots.pem") > 0) {
    wanted["roots.pem"] = manifest.roots_sha256;
  }
  for (const auto& [name, sha256] : wanted) {
    const auto file = files.find(name);
    const std::string found = file == files.end() ? "none" : Sha256HexOf(file->second.content);
    if (found == sha256) continue;
    return absl::DataLossError(
        absl::StrCat(name, " in it has the sha256 ", found, ", not ", sha256));
  }
  return absl::OkStatus();
}

absl::Status WriteFiles(const std::map<std::string, ArchiveFile>& files, const std::string& dir) {
  for (const auto& [name, file] : files) {
    const std::string path = JoinPath(dir, name);
    RETURN_IF_ERROR(WriteFileAtomic(path, file.content, name == "roots.pem" ? 0644 : 0755));
    // Where there is no manifest, the time tells an older build from a newer one.
    const timespec times[2] = {{file.modified_s, 0}, {file.modified_s, 0}};
    if (utimensat(AT_FDCWD, path.c_str(), times, 0) != 0) {
      return ErrnoStatus(errno, absl::StrCat("set the time of ", path));
    }
  }
  return absl::OkStatus();
}

// Puts the files into `dir`, in the place of what is there.
absl::Status Publish(const std::map<std::string, ArchiveFile>& files, const std::string& dir) {
  const std::string parent = DirName(dir);
  RETURN_IF_ERROR(MakeDirectories(parent));
  RETURN_IF_ERROR(RemoveAbandonedStaging(parent));
  RETURN_IF_ERROR(SettleReplaced(dir));
  ASSIGN_OR_RETURN(const StagingDir staging, StagingDir::Create(parent));
  const std::string made = JoinPath(staging.path(), BaseName(dir));
  RETURN_IF_ERROR(MakeDirectories(made));
  RETURN_IF_ERROR(WriteFiles(files, made));
  if (IsDirectory(dir)) return ReplaceDirectory(made, dir);
  if (file_ops::Rename(made, dir) != 0) return ErrnoStatus(errno, absl::StrCat("make ", dir));
  return SyncDirectory(parent);
}

}  // namespace

absl::StatusOr<std::string> ArchivePlace(const FetchOptions& options, NodePlatform platform) {
  const std::string from = options.from.empty() ? ReleaseAddress() : options.from;
  if (from.empty()) {
    return WithHint(absl::FailedPreconditionError(
                        "fetch node programs: this gpuctl was built without a release's address"),
                    FetchHint({platform}));
  }
  if (IsAddress(from)) {
    RETURN_IF_ERROR(CheckAddress(from));
    return absl::EndsWith(from, "/") ? from + ArchiveName(options, platform) : from;
  }
  return IsDirectory(from) ? JoinPath(from, ArchiveName(options, platform)) : from;
}

absl::StatusOr<Fetched> FetchNodePrograms(const FetchOptions& options, NodePlatform platform) {
  Fetched fetched;
  if (options.manifest.has_value() && options.manifest->For(platform) == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("fetch node programs: this gpuctl's release has none for ",
                     PlatformName(platform), ", and it takes no others"));
  }
  ASSIGN_OR_RETURN(fetched.from, ArchivePlace(options, platform));
  std::string archive;
  if (IsAddress(fetched.from)) {
    ASSIGN_OR_RETURN(archive, Download(*options.http(), fetched.from));
  } else {
    ASSIGN_OR_RETURN(archive, ReadFileToString(fetched.from, kMostArchiveBytes));
  }
  fetched.bytes = static_cast<int64_t>(archive.size());
  const NodeManifest::Platform* const wanted =
      options.manifest.has_value() ? options.manifest->For(platform) : nullptr;
  const auto refuse = [&fetched](const absl::Status& status) {
    return WithExitCode(Annotate(absl::DataLossError(status.message()), fetched.from),
                        kExitIntegrity);
  };
  if (wanted != nullptr) {
    if (const std::string sha256 = Sha256HexOf(archive); sha256 != wanted->sha256) {
      return refuse(
          absl::DataLossError(absl::StrCat("it is not the archive of this gpuctl's "
                                           "release: sha256 ",
                                           sha256, ", not ", wanted->sha256)));
    }
  }
  const absl::StatusOr<std::string> tar = UnpackZstd(archive, kMostUnpackedBytes);
  if (!tar.ok()) return refuse(tar.status());
  const auto files = ReadNodeArchive(*tar, platform);
  if (!files.ok()) return refuse(files.status());
  if (wanted != nullptr) {
    if (const absl::Status same = CheckFiles(*files, *options.manifest, platform); !same.ok()) {
      return refuse(same);
    }
  }
  fetched.verified = wanted != nullptr;
  fetched.dir = JoinPath(options.into, PlatformName(platform));
  RETURN_IF_ERROR(Publish(*files, fetched.dir));
  return fetched;
}

}  // namespace gpuctl
