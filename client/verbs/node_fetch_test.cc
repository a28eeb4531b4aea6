#include "client/verbs/node_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zstd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/programs/node_programs.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "tests/support/matchers.h"
#include "tests/support/node_programs_dir.h"
#include "tests/support/tar_file.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kArchive[] = "gpuctl-node-0.1.0-linux-aarch64.tar.zst";

std::string Pack(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

// Answers from a table, and notes what was asked for.
class TableHttp : public Http {
 public:
  TableHttp(const std::map<std::string, HttpResponse>& answers, std::vector<std::string>& asked)
      : answers_(answers), asked_(asked) {}
  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    asked_.push_back(request.url);
    const auto found = answers_.find(request.url);
    return found == answers_.end() ? HttpResponse{404, {}, ""} : found->second;
  }

 private:
  const std::map<std::string, HttpResponse>& answers_;
  std::vector<std::string>& asked_;
};

class NodeFetchTest : public ::testing::Test {
 protected:
  NodeFetchTest() {
    options_.into = dir_.Sub("cache/node/0.1.0");
    options_.version = "0.1.0";
    options_.http = [this] { return std::make_unique<TableHttp>(answers_, asked_); };
    archive_ = Archive("first");
  }
  static std::string Archive(const std::string& tail) {
    TarFile tar;
    for (const char* name : kNodeProgramNames) {
      tar.Add(absl::StrCat("linux-aarch64/", name), ProgramText(kArm, name + tail), '0',
              1790000000);
    }
    tar.Add("roots.pem", "roots of " + tail);
    return Pack(tar.Text());
  }
  // The manifest of the archive of `tail`.
  static NodeManifest ManifestOf(const std::string& tail) {
    NodeManifest manifest;
    NodeManifest::Platform& platform = manifest.platforms[kArm];
    platform.archive = kArchive;
    platform.sha256 = Sha256HexOf(Archive(tail));
    for (const char* name : kNodeProgramNames) {
      platform.files[name].sha256 = Sha256HexOf(ProgramText(kArm, name + tail));
    }
    manifest.roots_sha256 = Sha256HexOf("roots of " + tail);
    return manifest;
  }
  std::string Put(const std::string& content) { return dir_.Write("an archive", content); }
  absl::StatusOr<Fetched> Fetch() { return FetchNodePrograms(options_, kArm); }
  std::string Agent() {
    return ReadFileToString(dir_.Sub("cache/node/0.1.0/linux-aarch64/gpuctl-agent"))
        .value_or("none");
  }

  TempDir dir_;
  std::map<std::string, HttpResponse> answers_;
  std::vector<std::string> asked_;
  FetchOptions options_;
  std::string archive_;
};

TEST_F(NodeFetchTest, AFileOfARelease) {
  options_.manifest = ManifestOf("first");
  options_.from = Put(archive_);
  const auto fetched = Fetch();
  ASSERT_OK(fetched);
  EXPECT_TRUE(fetched->verified);
  EXPECT_EQ(fetched->bytes, static_cast<int64_t>(archive_.size()));
  EXPECT_EQ(Agent(), ProgramText(kArm, "gpuctl-agentfirst"));
  // What was fetched is found, and it is of the release.
  NodeProgramPlaces places;
  places.fetched = options_.into;
  places.manifest = options_.manifest;
  const NodePrograms found = NodePrograms::FindIn(places);
  ASSERT_NE(found.For(kArm), nullptr);
  EXPECT_TRUE(found.For(kArm)->fetched);
  EXPECT_EQ(found.For(kArm)->roots, JoinPath(fetched->dir, "roots.pem"));
  struct stat info {};
  ASSERT_EQ(stat(found.For(kArm)->shim.c_str(), &info), 0);
  EXPECT_EQ(info.st_mtime, 1790000000);
}

TEST_F(NodeFetchTest, WhatIsNotOfTheReleaseIsRefusedAndChangesNothing) {
  options_.from = Put(Archive("older"));
  ASSERT_OK(Fetch());
  options_.manifest = ManifestOf("first");
  for (const std::string& content :
       {Archive("other"), archive_ + "x", archive_.substr(0, 100), std::string()}) {
    options_.from = Put(content);
    const auto refused = Fetch();
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("sha256")));
    EXPECT_EQ(ExitCodeOf(refused.status()), kExitIntegrity);
    EXPECT_EQ(Agent(), ProgramText(kArm, "gpuctl-agentolder"));
  }
  // The archive's digest is right, and a file's in it is not.
  options_.manifest->platforms[kArm].sha256 = Sha256HexOf(Archive("other"));
  options_.from = Put(Archive("other"));
  EXPECT_THAT(Fetch(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("gpuctl-agent in it")));
  options_.manifest = ManifestOf("first");
  options_.manifest->roots_sha256 = std::string(64, '0');
  options_.from = Put(archive_);
  EXPECT_THAT(Fetch(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("roots.pem in it")));
  EXPECT_EQ(Agent(), ProgramText(kArm, "gpuctl-agentolder"));
}

TEST_F(NodeFetchTest, AnOwnBuildTakesWhatThereIsWithoutAManifest) {
  options_.from = Put(archive_);
  const auto fetched = Fetch();
  ASSERT_OK(fetched);
  EXPECT_FALSE(fetched->verified);
  options_.from = Put(Archive("second"));
  ASSERT_OK(Fetch());
  EXPECT_EQ(Agent(), ProgramText(kArm, "gpuctl-agentsecond"));
  // Nothing is left of the first, or of the change.
  EXPECT_THAT(ListDirectory(options_.into).value(), ElementsAre("linux-aarch64"));
  for (const std::string& content : {std::string("no zstd"), Pack("no tar"), Pack("")}) {
    options_.from = Put(content);
    EXPECT_THAT(Fetch(), StatusIs(absl::StatusCode::kDataLoss)) << content;
  }
  EXPECT_THAT(ListDirectory(options_.into).value(), ElementsAre("linux-aarch64"));
}

TEST_F(NodeFetchTest, AddressesAreHttpsOrOfThisComputer) {
  for (const char* from :
       {"http://example.com/a", "ftp://example.com/a", "http://127.0.0.1.example.com/a",
        "http://127.0.0.1@example.com/a", "http://127.0.0.1:80@example.com/a", "file:///etc/a"}) {
    options_.from = from;
    EXPECT_THAT(Fetch(), StatusIs(absl::StatusCode::kInvalidArgument)) << from;
  }
  EXPECT_THAT(asked_, IsEmpty());
  for (const char* from : {"https://example.com/a", "http://127.0.0.1:8080/a", "http://localhost/a",
                           "http://[::1]:8080/a"}) {
    options_.from = from;
    answers_[from] = {200, {}, archive_};
    EXPECT_OK(Fetch()) << from;
  }
}

TEST_F(NodeFetchTest, TheArchiveOfAFolderHasTheNameOfTheRelease) {
  options_.from = "https://example.com/releases/";
  answers_[absl::StrCat("https://example.com/releases/", kArchive)] = {200, {}, archive_};
  EXPECT_OK(Fetch());
  dir_.Write(absl::StrCat("folder/", kArchive), archive_);
  options_.from = dir_.Sub("folder");
  EXPECT_OK(Fetch());
  setenv("GPUCTL_NODE_URL", "https://example.com/releases", 1);
  options_.from = "";
  EXPECT_OK(Fetch());
  unsetenv("GPUCTL_NODE_URL");
  const auto nowhere = Fetch();
  EXPECT_THAT(nowhere, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(HintOf(nowhere.status()), HasSubstr("--from ARCHIVE"));
}

TEST_F(NodeFetchTest, RedirectionsLeadToSafeAddressesOnly) {
  options_.from = "https://example.com/a";
  answers_["https://example.com/a"] = {302, {{"location", "/b"}}, ""};
  answers_["https://example.com/b"] = {301, {{"location", "https://files.example.com/c"}}, ""};
  answers_["https://files.example.com/c"] = {200, {}, archive_};
  EXPECT_OK(Fetch());
  answers_["https://example.com/b"] = {302, {{"location", "http://example.com/c"}}, ""};
  EXPECT_THAT(Fetch(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("example.com/c")));
  answers_["https://example.com/b"] = {302, {{"location", "/a"}}, ""};
  asked_.clear();
  EXPECT_THAT(Fetch(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("redirections")));
  EXPECT_EQ(asked_.size(), 6u);
  options_.from = "https://example.com/none";
  EXPECT_THAT(Fetch(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("HTTP 404")));
}

}  // namespace
}  // namespace gpuctl
