// gpuctl cp: copy single files and folders to and from a run's work directory.
#include <fcntl.h>
#include <sys/stat.h>

#include <climits>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/results/sftp_pull.h"
#include "client/runs/context.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "client/transfer/transfer_interrupt.h"
#include "client/transfer/tree_transfer.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/copy_path.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/transfer/transfer.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

struct CpFlags {
  std::string from, to;
  int streams = 0;
};

absl::Status CopyError(absl::string_view path, absl::string_view cause, absl::string_view hint) {
  return WithExitCode(WithHint(absl::NotFoundError(absl::StrCat("cp ", path, ": ", cause)), hint),
                      kExitUsage);
}

class Copier {
 public:
  Copier(CommandContext& context, LinkFactory& links, const RunRow& row, const CpFlags& flags)
      : context_(context), links_(links), row_(row) {
    style_.streams = flags.streams;
  }

  // Copies a file or folder of the laptop to `to` in the work directory.
  absl::Status Up(const CopyPath& from, const CopyPath& to) {
    char resolved[PATH_MAX];
    if (realpath(from.path.c_str(), resolved) == nullptr) {
      return CopyError(from.path, "no such file or directory here", "RUN:PATH names one of a run");
    }
    const std::string source = resolved;
    RETURN_IF_ERROR(CheckSource(from.path, source));
    style_.what = BaseName(source);
    PushTarget target;
    target.job_id = row_.job_id;
    target.overwrite = true;
    const std::string goal =
        to.is_directory ? JoinPath(to.path.empty() ? "." : to.path, BaseName(source)) : to.path;
    const std::string inside = absl::StartsWith(goal, "./") ? goal.substr(2) : goal;
    Manifest manifest;
    std::string root = source;
    ScanNotes notes;
    ScanOptions scan;
    scan.notes = &notes;
    if (IsDirectory(source)) {
      target.into = inside;
      ASSIGN_OR_RETURN(manifest, ScanTree(source, scan));
    } else {
      root = DirName(source);
      target.into = std::string(ParentPath(inside));
      target.sources = {BaseName(source)};
      const UniqueFd dir(file_ops::Open(root, O_RDONLY | O_DIRECTORY));
      if (!dir.valid()) return ErrnoStatus(errno, absl::StrCat("open ", root));
      ASSIGN_OR_RETURN(const Manifest scanned, ScanFileAt(dir.get(), BaseName(source), scan));
      FileEntry entry = scanned[0];
      entry.set_path(BaseName(inside));
      manifest.Append(entry);
    }
    TellSnapshots(notes.grown);
    TellSetId(notes.set_id);
    const absl::StatusOr<PushOutcome> outcome =
        Push(context_, links_, root, manifest, target, style_);
    if (!outcome.ok()) return ExplainFullNode(outcome.status(), row_.target);
    const auto& kept = outcome->merge.kept();
    if (outcome->merge.kept_count() > 0) {  // a node may name none of them
      const bool is_file = !target.sources.empty();
      return WithHint(
          absl::FailedPreconditionError(absl::StrCat(
              "cp to ", row_.name, ":",
              is_file || kept.empty() ? inside : JoinPath(target.into, kept[0]), ": ",
              is_file ? "what is there is no ordinary file, and stays: a directory, a symlink, a "
                        "FIFO or a device"
                      : "something of another kind is there, and stays: a directory or a symlink "
                        "where a file should go, or the other way round")),
          "name another place, or remove that first");
    }
    Report(absl::StrCat(row_.name, ":", inside), outcome->sent, manifest.content_bytes());
    return absl::OkStatus();
  }

  // Copies a file or folder of the work directory to the laptop.
  absl::Status Down(const CopyPath& from, const CopyPath& to) {
    const bool into = to.is_directory || IsDirectory(to.path);
    const std::string name = from.path.empty() ? row_.name : BaseName(from.path);
    const std::string target = into ? JoinPath(to.path, name) : to.path;
    const std::string parent = DirName(target);
    RETURN_IF_ERROR(MakeDirectories(parent, 0777));
    style_.what = name;
    PullSubject subject;
    subject.job_id = row_.job_id;
    subject.path = from.path.empty() ? "work" : JoinPath("work", from.path);
    subject.snapshots = true;
    if (PathExists(target)) subject.have = IsDirectory(target) ? target : parent;
    subject.choose = [&](const Manifest& offered) -> absl::StatusOr<std::vector<bool>> {
      RETURN_IF_ERROR(CheckHome(offered, target));
      return std::vector<bool>();
    };
    absl::StatusOr<Pulled> pulled = Pull(context_, links_, subject, parent, style_);
    if (absl::IsDataLoss(pulled.status())) {
      // The job may have written the file after the node had hashed it.
      pulled = Pull(context_, links_, subject, parent, style_);
    }
    absl::Status why = pulled.status();
    if (absl::IsUnavailable(why) && !AgentCannotRun(why)) {
      // A stream that ends does not always say why its program failed; a link does.
      absl::StatusOr<NodeCalls> calls = NodeCalls::Connect(context_, links_, row_.target);
      why = calls.ok() ? calls->Hello().status() : calls.status();
    }
    if (AgentCannotRun(why)) return DownBySftp(why, from.path, target);
    if (absl::IsNotFound(pulled.status()) && !from.path.empty()) {
      return WithHint(absl::NotFoundError(absl::StrCat("cp from ", row_.name, ":", from.path, ": ",
                                                       pulled.status().message())),
                      absl::StrCat("gpuctl exec ", row_.name, " -- ls shows what is there"));
    }
    RETURN_IF_ERROR(pulled.status());
    RETURN_IF_ERROR(Place(*pulled, target));
    TellSnapshots({pulled->notes.grown().begin(), pulled->notes.grown().end()});
    TellSetId({pulled->notes.set_id().begin(), pulled->notes.set_id().end()});
    Report(target, pulled->received, pulled->tree->manifest().content_bytes());
    return absl::OkStatus();
  }

  int64_t bytes() const { return bytes_; }
  const std::string& target() const { return target_; }

 private:
  absl::Status DownBySftp(const absl::Status& why, const std::string& path,
                          const std::string& target) {
    const absl::StatusOr<std::unique_ptr<SftpPull>> sftp = SftpPull::Open(context_, links_, row_);
    if (!sftp.ok()) return why;
    context_.Say(
        absl::StrCat("the agent cannot run on ", row_.target.name, "; bringing it by SFTP"));
    ASSIGN_OR_RETURN(const Pulled pulled, (*sftp)->BringPath(path, DirName(target)));
    RETURN_IF_ERROR(Place(pulled, target));
    bytes_ = pulled.received.bytes;
    target_ = target;
    context_.Say(absl::StrCat(target, ": ", FormatBytes(bytes_), ", not verified"));
    return absl::OkStatus();
  }

  // Refuses a device or FIFO as SRC here.
  static absl::Status CheckSource(const std::string& shown, const std::string& source) {
    struct stat info {};
    if (stat(source.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) {
      return absl::OkStatus();
    }
    return CopyError(shown,
                     S_ISFIFO(info.st_mode) ? "it is a FIFO, no file or directory"
                                            : "it is a device or socket, no file or directory",
                     "cp copies files and folders");
  }

  // Refuses to put a file in the place of something that is none.
  static absl::Status CheckFile(const std::string& target) {
    struct stat info {};
    if (lstat(target.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return absl::OkStatus();
    return WithHint(
        absl::FailedPreconditionError(absl::StrCat("cp to ", target, ": it is ",
                                                   S_ISDIR(info.st_mode)   ? "a directory"
                                                   : S_ISLNK(info.st_mode) ? "a symlink"
                                                                           : "no ordinary file")),
        "name another place, or remove that first");
  }

  // Refuses, before anything is sent, what Place would refuse.
  static absl::Status CheckHome(const Manifest& offered, const std::string& target) {
    if (!IsDirectory(target)) return CheckFile(target);
    for (const FileEntry& entry : offered) {
      struct stat info {};
      if (lstat(JoinPath(target, entry.path()).c_str(), &info) != 0) continue;
      RETURN_IF_ERROR(Annotate(CheckReplaceable(info, entry), absl::StrCat("cp to ", target)));
    }
    return absl::OkStatus();
  }

  absl::Status Place(const Pulled& pulled, const std::string& target) {
    TreeBuilder& tree = *pulled.tree;
    if (!pulled.is_file) {
      return IsDirectory(target) ? MergePulled(tree, target) : PublishPulled(tree, target);
    }
    RETURN_IF_ERROR(CheckFile(target));
    if (file_ops::Rename(JoinPath(tree.tree_path(), tree.manifest()[0].path()), target) != 0) {
      return ErrnoStatus(errno, absl::StrCat("put into place ", target));
    }
    return SyncDirectory(DirName(target));
  }

  void TellSnapshots(const std::vector<std::string>& grown) {
    if (!grown.empty()) context_.Warn(DescribeGrown(grown));
  }
  void TellSetId(const std::vector<std::string>& set_id) {
    if (!set_id.empty()) context_.Warn(DescribeSetId(set_id));
  }

  void Report(const std::string& target, const TransferCount& moved, int64_t content) {
    bytes_ = content;
    target_ = target;
    context_.Say(absl::StrCat(target, ": ", FormatBytes(content),
                              moved.bytes < content ? absl::StrCat(" (", FormatBytes(moved.bytes),
                                                                   " sent, the rest was there)")
                                                    : "",
                              ", verified"));
  }

  CommandContext& context_;
  LinkFactory& links_;
  const RunRow& row_;
  TransferStyle style_;
  int64_t bytes_ = 0;
  std::string target_;
};

}  // namespace

absl::StatusOr<int> CmdCp(CommandContext& context, std::vector<std::string> args) {
  CpFlags flags;
  VerbParser parser(
      context, "cp SRC DST [FLAGS]",
      "Copies a file or folder to or from a run's work directory, verified; what the\n"
      "other side has already is not sent.",
      "RUN:PATH is relative to the work directory. Replaces files that exist.\n\n"
      "  gpuctl cp config.json amber-fox-3:\n"
      "  gpuctl cp amber-fox-3:outputs/ ./results/");
  parser.Option("SRC", flags.from, "PATH here, or RUN:PATH").Required();
  parser.Option("DST", flags.to, "PATH here, or RUN:PATH").Required();
  parser.Option("--streams", flags.streams, "Connections to use (default: as many as help)")
      .Range(1, 16);
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(const CopyPath from, ParseCopyPath(flags.from));
  ASSIGN_OR_RETURN(const CopyPath to, ParseCopyPath(flags.to));
  if (from.run.empty() == to.run.empty()) {
    return UsageError("cp: one of SRC and DST is RUN:PATH, the other a path here",
                      "gpuctl cp amber-fox-3:out.txt .");
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  const std::string& run = from.run.empty() ? to.run : from.run;
  RETURN_IF_ERROR(CheckNoBatch(context, {run}, "gpuctl cp $-1:PATH takes one run"));
  ASSIGN_OR_RETURN(const RunRow row, store->Get(run));
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  ASSIGN_OR_RETURN(
      const auto interrupt,
      TransferInterrupt::Install(context, "cp", "what has come so far is kept beside the target",
                                 "the same gpuctl cp goes on with the rest"));
  Copier copier(context, *links, row, flags);
  RETURN_IF_ERROR(from.run.empty() ? copier.Up(from, to) : copier.Down(from, to));
  if (context.json()) {
    nlohmann::ordered_json json;
    json["run_id"] = row.run_id;
    json["name"] = row.name;
    json["to"] = copier.target();
    json["bytes"] = copier.bytes();
    context.PrintJson(json);
  }
  return kExitOk;
}

}  // namespace gpuctl
