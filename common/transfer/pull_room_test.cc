// The room on the disk for a pull.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/transfer/frame_channel.h"
#include "common/transfer/pull.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_peer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

// Pulls from a node that sends this manifest and then other content.
absl::Status PullWithRoom(const Manifest& manifest, bool is_file, const PullSubject& subject,
                          const TempDir& to, const TransferOptions& options) {
  ScriptedPeer peer("");
  EXPECT_THAT(WriteManifest(peer.channel(), manifest, is_file), IsOk());
  ScriptedNode node(peer.Heard() + Encode({DataFrame(0, 0, "x"), DoneFrame()}));
  return PullTree(node.stream(), subject, to.path(), Clock::Real(), options).status();
}

TEST(PullTree, LooksForRoomBeforeItTakesAny) {
  TempDir to;
  PullSubject subject;
  subject.job_id = "j-1";
  subject.path = "work/out.txt";
  TransferOptions options;
  options.free_bytes = [](const std::string&) { return int64_t{0}; };
  const absl::Status full =
      PullWithRoom(ManifestOf({FileOf("out.txt", "x")}), true, subject, to, options);
  EXPECT_TRUE(IsDiskFull(full)) << full;
  EXPECT_THAT(full, StatusIs(full.code(), HasSubstr("1 bytes are to come, and 0 are free")));
  EXPECT_TRUE(to.Names().empty());
}

TEST(PullTree, NeedsNoRoomForWhatIsAtHome) {
  TempDir home;
  home.Write("same", std::string(1000, 's'));
  home.Write("other", std::string(1000, 'o'));
  TempDir to;
  PullSubject subject;
  subject.job_id = "j-1";
  subject.path = "work";
  subject.have = home.path();
  TransferOptions options;
  options.free_bytes = [](const std::string&) { return int64_t{10}; };
  const auto pull = [&](absl::string_view content) {
    const Manifest manifest = ManifestOf({FileOf("new", "0123456789"), FileOf("same", content)});
    return PullWithRoom(manifest, false, subject, to, options);
  };
  // The peer sends other content, which is read only after all this.
  EXPECT_THAT(pull(std::string(1000, 's')), StatusIs(kInvalid));
  ASSERT_THAT(RemoveTree(to.Sub(to.Names()[0])), IsOk());
  // The size alone does not make it the same, and nothing stays of what cannot be completed.
  EXPECT_TRUE(IsDiskFull(pull(std::string(1000, 'x'))));
  EXPECT_TRUE(to.Names().empty());
}

}  // namespace
}  // namespace gpuctl
