// Writes the seeds of watch_mirror_fuzz and node_words_fuzz, messages as nodes send them, and those
// of checkpoint_layout_fuzz: each with its length.
//
//   make_node_corpus tests/fuzz/corpus
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "common/transfer/fault_line.h"
#include "gpuctl/v1/agent.pb.h"
#include "tests/fuzz/delimited.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Stream;
using gpuctl::v1::WatchReply;

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

std::string Lifecycle() {
  LifecycleEvent event;
  event.attempt = 1;
  event.pid = 42;
  event.boot_id = "b-1";
  std::string lines = FormatLifecycleEvent(event);
  event.type = LifecycleEvent::Type::kExited;
  event.exit_code = 3;
  event.output_size = 11;
  return lines + FormatLifecycleEvent(event);
}

void AddChunk(Stream stream, int64_t offset, const std::string& data, WatchReply& reply) {
  gpuctl::v1::Chunk& chunk = *reply.add_chunks();
  chunk.set_stream(stream);
  chunk.set_offset(offset);
  chunk.set_data(data);
}

void AddHeader(Stream stream, int64_t resume, bool diverged, WatchReply& reply) {
  gpuctl::v1::StreamHeader& header = *reply.add_headers();
  header.set_stream(stream);
  header.set_resume_offset(resume);
  header.set_size(resume + 100);
  header.set_diverged(diverged);
}

// The replies of one run: all streams, then the end.
std::vector<WatchReply> Run() {
  std::vector<WatchReply> replies(3);
  for (const Stream stream : {gpuctl::v1::STREAM_LIFECYCLE, gpuctl::v1::STREAM_OUTPUT,
                              gpuctl::v1::STREAM_METRICS, gpuctl::v1::STREAM_TELEMETRY}) {
    AddHeader(stream, 0, false, replies[0]);
  }
  AddChunk(gpuctl::v1::STREAM_OUTPUT, 0, "step 1 loss 2.5\n", replies[1]);
  AddChunk(gpuctl::v1::STREAM_METRICS, 0, "{\"step\":1,\"loss\":2.5}\n", replies[1]);
  AddChunk(gpuctl::v1::STREAM_TELEMETRY, 0, "{\"time_ms\":1,\"gpus\":[{\"util\":97}]}\n",
           replies[1]);
  replies[1].mutable_heartbeat()->set_node_id("n-1");
  replies[1].mutable_heartbeat()->set_lifecycle_size(40);
  AddChunk(gpuctl::v1::STREAM_LIFECYCLE, 0, Lifecycle(), replies[2]);
  replies[2].set_complete(true);
  return replies;
}

std::string Watch(char mode, const std::vector<WatchReply>& replies) {
  std::string bytes(1, mode);
  for (const WatchReply& reply : replies) AddRecord(reply.SerializeAsString(), bytes);
  return bytes;
}

// Cuts, skips and bytes that differ from those before.
std::vector<WatchReply> Diverging(int64_t skip) {
  std::vector<WatchReply> replies = Run();
  replies.resize(8);
  replies[3].Clear();  // its record is empty: the link breaks
  AddHeader(gpuctl::v1::STREAM_OUTPUT, 4, true, replies[4]);
  AddChunk(gpuctl::v1::STREAM_OUTPUT, 4, "other bytes\n", replies[4]);
  AddHeader(gpuctl::v1::STREAM_TELEMETRY, 0, true, replies[5]);
  AddChunk(gpuctl::v1::STREAM_TELEMETRY, 0, "{}\n", replies[5]);
  AddHeader(gpuctl::v1::STREAM_OUTPUT, skip, false, replies[6]);
  AddChunk(gpuctl::v1::STREAM_OUTPUT, skip, "behind the hole\n", replies[6]);
  AddChunk(gpuctl::v1::STREAM_OUTPUT, skip, "repeated, and more behind the hole\n", replies[7]);
  return replies;
}

// Offsets that no stream has.
std::vector<WatchReply> Extreme() {
  std::vector<WatchReply> replies(6);
  AddChunk(gpuctl::v1::STREAM_OUTPUT, kLargest, "x", replies[0]);
  AddChunk(gpuctl::v1::STREAM_OUTPUT, -1, "x", replies[1]);
  AddHeader(gpuctl::v1::STREAM_TELEMETRY, int64_t{1} << 56, false, replies[2]);
  AddChunk(gpuctl::v1::STREAM_TELEMETRY, int64_t{1} << 56, "x", replies[2]);
  AddHeader(gpuctl::v1::STREAM_OUTPUT, kLargest - 100, true, replies[3]);
  AddHeader(gpuctl::v1::STREAM_METRICS, -5, true, replies[4]);
  AddChunk(static_cast<Stream>(99), 0, "of a later version", replies[5]);
  return replies;
}

// A node that would fill the table of files: holes, and streams that diverge again and again.
std::vector<WatchReply> Holes(Stream stream, int64_t segment) {
  std::vector<WatchReply> replies(200);
  int64_t at = 0;
  for (size_t i = 0; i < replies.size(); ++i) {
    AddHeader(stream, at, false, replies[i]);
    if (i % 2 == 0) AddChunk(stream, at, "x", replies[i]);
    at += segment;
  }
  return replies;
}
std::vector<WatchReply> Asides(Stream stream) {
  std::vector<WatchReply> replies(200);
  for (WatchReply& reply : replies) {
    AddHeader(stream, 0, true, reply);
    AddChunk(stream, 0, "x", reply);
  }
  return replies;
}

std::string Word(char kind, const std::string& bytes) {
  std::string record;
  AddRecord(absl::StrCat(std::string(1, kind), bytes), record);
  return record;
}

std::string Words() {
  gpuctl::v1::ErrorDetail detail;
  detail.set_kind(gpuctl::v1::ErrorDetail::KIND_SERVER_STUCK);
  detail.set_root("/home/ada/.gpuctl");
  gpuctl::v1::HelloReply hello;
  hello.set_api_level(1);
  gpuctl::v1::Gpu& gpu = *hello.add_gpus();
  gpu.set_name("NVIDIA A10 \x1b[2J");
  gpu.set_memory_bytes(int64_t{24} << 30);
  gpuctl::v1::ListArtifactsReply listing;
  gpuctl::v1::Artifact& file = *listing.add_files();
  file.set_path("work/out/model.bin");
  file.set_size(10);
  gpuctl::v1::CheckpointInfo& checkpoint = *listing.add_checkpoints();
  checkpoint.set_path("work/epoch-3");
  checkpoint.set_kind(gpuctl::v1::CheckpointInfo::KIND_FOREIGN);
  checkpoint.add_files()->set_path("work/epoch-3/weights");
  return absl::StrCat(
      Word(0, absl::StrCat("sh: not found\n", FormatFaultLine(detail))),
      Word(1, detail.SerializeAsString()),
      Word(2, absl::StrCat("\x0e", "gone \x1b]0;x\x07", detail.SerializeAsString())),
      Word(3, Lifecycle()),
      Word(4,
           "{\"lease_id\":\"l-1\",\"job_runs\":false,\"results_home\":true,\"due\":\"limit:idle\","
           "\"can_release\":false,\"release_requests\":3}"),
      Word(5, hello.SerializeAsString()), Word(6, listing.SerializeAsString()),
      Word(7, "a line \xe2\x80\xae\nand another\t\xff"));
}

std::string Ends() {
  std::string bytes;
  for (const char* end :
       {"\"exit_code\":256", "\"exit_code\":2147483647", "\"signal\":2147483647", "\"signal\":-5",
        "\"signal\":9,\"reason\":\"limit:time\"", "\"error\":\"no such\\nfile\""}) {
    bytes +=
        Word(3, absl::StrCat("{\"event\":\"exited\",\"attempt\":1,", end, ",\"output_size\":0}\n"));
  }
  bytes += Word(3, "{\"event\":\"lost\",\"attempt\":1,\"reason\":\"\\u001b[31mboot\"}\n");
  return bytes;
}

// A checkpoint in two shards with its index, a trainer's files, and a file of torch.save.
std::string Checkpoint() {
  std::string bytes;
  const auto add = [&bytes](const std::string& name, const std::string& content) {
    AddRecord(name, bytes);
    AddRecord(content, bytes);
  };
  const std::string header = R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  std::string tensors(8, '\0');
  tensors[0] = static_cast<char>(header.size());
  tensors += header + "wwww";
  add("model-00001-of-00002.safetensors", tensors);
  add("model-00002-of-00002.safetensors", tensors);
  add("model.safetensors.index.json",
      R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"../b"}})");
  add("training_args.bin", std::string("PK\3\4zzzzPK\5\6", 12) + std::string(18, '\0'));
  add("trainer_state.json", R"({"global_step":20})");
  add("__0_0.distcp", "shard");
  add(".metadata", "last");
  add("optimizer.pt.tmp", "");
  return bytes;
}

void Write(const std::string& path, const std::string& bytes) {
  const absl::Status status = WriteFileAtomic(path, bytes, 0644);
  if (status.ok()) return;
  fprintf(stderr, "make_node_corpus: %s\n", status.ToString().c_str());
  exit(1);
}

int Make(const std::string& folder) {
  const std::string watch = JoinPath(folder, "watch_mirror");
  const std::string words = JoinPath(folder, "node_words");
  const std::string layout = JoinPath(folder, "checkpoint_layout");
  for (const std::string& each : {watch, words, layout}) Require(MakeDirectories(each).ok());
  Write(JoinPath(watch, "run"), Watch('\0', Run()));
  Write(JoinPath(watch, "run_followed"), Watch('\1', Run()));
  Write(JoinPath(watch, "run_without_room"), Watch('\3', Run()));
  Write(JoinPath(watch, "diverging"), Watch('\0', Diverging(1024)));
  Write(JoinPath(watch, "diverging_followed"), Watch('\1', Diverging(int64_t{1} << 40)));
  Write(JoinPath(watch, "extreme"), Watch('\0', Extreme()));
  std::vector<WatchReply> many;
  for (int i = 0; i < 12; ++i) {
    for (const WatchReply& reply : Diverging((i + 1) * 2048)) many.push_back(reply);
  }
  Write(JoinPath(watch, "many"), Watch('\0', many));
  Write(JoinPath(watch, "holes"), Watch('\0', Holes(gpuctl::v1::STREAM_OUTPUT, 512)));
  Write(JoinPath(watch, "holes_in_telemetry"),
        Watch('\0', Holes(gpuctl::v1::STREAM_TELEMETRY, 1 << 20)));
  Write(JoinPath(watch, "asides"), Watch('\0', Asides(gpuctl::v1::STREAM_OUTPUT)));
  Write(JoinPath(watch, "asides_of_lines"), Watch('\0', Asides(gpuctl::v1::STREAM_METRICS)));
  Write(JoinPath(watch, "asides_of_telemetry"), Watch('\0', Asides(gpuctl::v1::STREAM_TELEMETRY)));
  Write(JoinPath(words, "all"), Words());
  Write(JoinPath(words, "ends"), Ends());
  Write(JoinPath(layout, "all"), Checkpoint());
  return 0;
}

}  // namespace
}  // namespace gpuctl

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  return gpuctl::Make(argv[1]);
}
