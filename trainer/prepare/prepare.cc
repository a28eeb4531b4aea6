#include "trainer/prepare/prepare.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/json_object.h"
#include "trainer/base/text.h"
#include "trainer/config/families.h"
#include "trainer/data/prepared.h"
#include "trainer/data/prompts.h"
#include "trainer/prepare/digest_set.h"
#include "trainer/prepare/pipeline.h"
#include "trainer/prepare/row_source.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kMaxContext = int64_t{1} << 24;
constexpr size_t kListedBadRows = 10;
constexpr size_t kSampleTokens = 2000;

// A row of the input, encoded or refused.
struct PreparedRow {
  RowKind kind = RowKind::kText;
  bool is_chat = false;
  bool continues = false;
  int64_t line = 0;
  RowDigest digest = {};
  EncodedRow encoded;
  std::string fault;
  std::string hint;
};

struct PreparedBatch {
  std::string path;
  bool held_out = false;
  size_t bytes = 0;
  std::vector<PreparedRow> rows;
};

RowDigest DigestOf(const std::string& bytes) {
  const std::string hex = Sha256Hex(bytes);
  return {std::strtoull(hex.substr(0, 16).c_str(), nullptr, 16),
          std::strtoull(hex.substr(16, 16).c_str(), nullptr, 16)};
}

PreparedRow PrepareRow(const RowEncoder& encoder, const RawRow& raw) {
  PreparedRow made;
  made.line = raw.line;
  made.continues = raw.continues;
  made.fault = raw.fault;
  if (!raw.fault.empty()) return made;
  made.digest = DigestOf(raw.bytes);
  try {
    if (raw.is_document) {
      CheckDocument(raw.bytes);
      made.encoded = encoder.EncodeDocument(raw.bytes, !raw.continues, raw.ends);
      return made;
    }
    const Row row = ParseRow(raw.bytes);
    made.kind = row.kind;
    made.is_chat = row.is_chat;
    made.encoded = encoder.Encode(row);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData || (made.is_chat && !encoder.has_template())) throw;
    made.fault = error.what();
    made.hint = error.hint();
  }
  return made;
}

// Takes the rows in their order, counts them, and writes them.
class RowSink {
 public:
  RowSink(const PrepareOptions& options, FolderWriter* writer, PrepareReport* report)
      : options_(options), writer_(writer), report_(report) {}

  void Take(const PreparedBatch& batch) {
    report_->bytes += static_cast<int64_t>(batch.bytes);
    for (const PreparedRow& row : batch.rows) {
      if (row.continues && document_is_bad_) continue;
      const std::string fault = row.fault.empty() ? FaultAmongOthers(row) : row.fault;
      document_is_bad_ = !fault.empty();
      if (document_is_bad_) {
        AddBad(batch.path, row, fault);
      } else if (row.continues) {
        Continue(row.encoded);
      } else {
        Begin(batch, row);
      }
    }
  }

  // Sees that both parts have rows, as far as that can be. Throws Error(kBadData).
  void Finish() {
    const auto rows = [&](Part part) { return writer_->part(part).counts().rows; };
    const std::string data =
        options_.data.front() + (options_.data.size() > 1 ? " and other data" : "");
    if (rows(kTrain) + rows(kHeldOut) == 0) throw DataError("prepare: no rows in " + data);
    const bool by_share = options_.held_out_file.empty();
    Part from = kTrain;
    std::vector<std::pair<int64_t, int64_t>> moved;
    if (rows(kTrain) == 0 || rows(kHeldOut) == 0) {
      from = rows(kTrain) == 0 ? kHeldOut : kTrain;
      if (!by_share) {
        throw DataError("prepare: no rows in " + (from == kTrain ? options_.held_out_file : data));
      }
      moved = nearest_;
      if (distinct_ < 2) {
        throw DataError(
            "prepare: only one row, or copies of one, in " + data +
                ", and one must be held out and one trained on",
            "two different rows or more are needed; or name another file with --held-out");
      }
    }
    const auto moves = static_cast<int64_t>(moved.size());
    if (by_share) report_->held_out_rows += from == kTrain ? moves : -moves;
    writer_->Finish(from, moved);
    report_->parts[kTrain] = writer_->part(kTrain).counts();
    report_->parts[kHeldOut] = writer_->part(kHeldOut).counts();
  }

 private:
  // The first good row decides whether the data is pairs.
  std::string FaultAmongOthers(const PreparedRow& row) {
    const bool is_pair = row.kind == RowKind::kPair;
    if (!report_->pairs) report_->pairs = is_pair;
    if (*report_->pairs == is_pair) return "";
    return is_pair ? "is a pair, and rows before it are none"
                   : "is no pair, and rows before it are pairs";
  }

  void AddBad(const std::string& path, const PreparedRow& row, const std::string& fault) {
    if (report_->bad == 0) report_->bad_hint = row.hint;
    if (++report_->bad <= static_cast<int64_t>(kListedBadRows)) {
      report_->bad_rows.push_back(path + ":" + std::to_string(row.line) + ": " + fault);
    }
  }

  // A row of the input that stands for itself.
  void Begin(const PreparedBatch& batch, const PreparedRow& row) {
    ++report_->rows[static_cast<size_t>(row.kind)];
    const bool fresh = seen_.Insert(row.digest);
    if (fresh) {
      ++distinct_;
    } else {
      ++report_->duplicates;
      if (batch.held_out) ++report_->known_held_out;
    }
    const double place = std::ldexp(static_cast<double>(row.digest[0]), -64);  // in [0, 1]
    part_ = batch.held_out || (options_.held_out_file.empty() && place < options_.held_out)
                ? kHeldOut
                : kTrain;
    if (part_ == kHeldOut && !batch.held_out) ++report_->held_out_rows;
    const int64_t first = writer_->part(part_).counts().rows;
    if (row.encoded.dropped > 0) ++report_->truncated;
    report_->dropped += row.encoded.dropped;
    const PartCounts before = writer_->part(part_).counts();
    Write(row.encoded, 0);
    const PartCounts& after = writer_->part(part_).counts();
    if (row.is_chat) {
      report_->chat_tokens += after.tokens - before.tokens;
      report_->chat_learned += after.learned - before.learned;
    }
    KeepNearest(std::abs(place - options_.held_out), row.digest, first);
  }

  void Continue(const EncodedRow& encoded) {
    if (encoded.words.empty()) return;
    std::vector<uint32_t> joined = {last_word_ & ~kLearnedBit};
    joined.insert(joined.end(), encoded.words.begin(),
                  encoded.words.begin() + static_cast<ptrdiff_t>(encoded.ends[0]));
    writer_->part(part_).Add(joined.data(), joined.size());
    last_word_ = joined.back();
    Write(encoded, 1);
    if (!nearest_.empty() && nearest_is_last_) {
      nearest_.back().second = writer_->part(part_).counts().rows;
    }
  }

  void Write(const EncodedRow& encoded, size_t from) {
    for (size_t i = from; i < encoded.ends.size(); ++i) {
      const size_t begin = i == 0 ? 0 : encoded.ends[i - 1];
      const uint32_t* words = encoded.words.data() + begin;
      const size_t size = encoded.ends[i] - begin;
      writer_->part(part_).Add(words, size);
      last_word_ = words[size - 1];
      // Of a pair both are shown.
      const int64_t each = report_->pairs.value_or(false) ? 2 : 1;
      const auto shown = static_cast<int64_t>(report_->samples.size());
      if (static_cast<int64_t>(i) < each && shown < each * options_.samples) {
        report_->samples.emplace_back(words, words + std::min(size, kSampleTokens));
      }
    }
  }

  // Remembers where the row, and those that equal it, lie that would be the first to change sides.
  void KeepNearest(double distance, const RowDigest& digest, int64_t first) {
    nearest_is_last_ = false;
    if (distance > nearest_distance_ ||
        (distance == nearest_distance_ && digest != nearest_digest_))
      return;
    if (distance < nearest_distance_) nearest_.clear();
    nearest_distance_ = distance;
    nearest_digest_ = digest;
    nearest_.emplace_back(first, writer_->part(part_).counts().rows);
    nearest_is_last_ = true;
  }

  const PrepareOptions& options_;
  FolderWriter* const writer_;
  PrepareReport* const report_;
  DigestSet seen_;
  int64_t distinct_ = 0;
  Part part_ = kTrain;
  uint32_t last_word_ = 0;
  bool document_is_bad_ = false;
  std::vector<std::pair<int64_t, int64_t>> nearest_;  // its rows in its part
  double nearest_distance_ = std::numeric_limits<double>::infinity();
  RowDigest nearest_digest_ = {};
  bool nearest_is_last_ = false;
};

// Reads what the model takes. Throws Error(kBadConfig), Error(kBadData).
void ReadContext(const PrepareOptions& options, PrepareReport* report) {
  const std::string path = options.model + "/config.json";
  report->context = options.context;
  if (!Exists(path)) {
    if (options.context > 0) return;
    throw ConfigError("prepare: there is no " + path, "say with --context how long rows may be");
  }
  const nlohmann::json config =
      ParseJsonObject(ReadWholeFile(path, kLargestSettings), "read " + path);
  const ModelConfig model = ModelFromHuggingFace(config, path);
  report->model_rows = model.vocab_size;
  if (options.context > model.context) {
    throw ConfigError(Format("prepare: --context %lld is more than the model's %lld",
                             static_cast<long long>(options.context),
                             static_cast<long long>(model.context)));
  }
  if (options.context == 0) report->context = std::min(model.context, kMaxContext);
}

const char* NameOfMask(Mask mask) {
  return mask == Mask::kAll ? "all" : mask == Mask::kLast ? "last" : "assistant";
}

// Encodes the prompts as the rows are: for the chat template if there are conversations. Throws
// Error(kBadData).
EncodedPrompts EncodePrompts(const RowEncoder& encoder, const std::vector<std::string>& prompts,
                             bool chat) {
  EncodedPrompts encoded;
  encoded.chat = chat;
  if (encoder.end()) encoded.stop_ids = {*encoder.end()};
  for (const std::string& text : prompts) {
    const std::vector<int32_t> ids = encoder.EncodePrompt(text, chat);
    encoded.prompts.push_back({text, {ids.begin(), ids.end()}});
  }
  const Tokenizer& tokenizer = encoder.tokenizer();
  for (int32_t id = 0; id < tokenizer.IdEnd(); ++id) {
    encoded.pieces.push_back(tokenizer.BytesWithin(id));
  }
  return encoded;
}

// Throws if bad rows are not skipped.
void CheckBadRows(const PrepareOptions& options, const PrepareReport& report) {
  if (report.bad == 0 || options.skip_bad_rows) return;
  std::string message =
      Format("prepare: %lld rows cannot be used", static_cast<long long>(report.bad));
  if (report.bad == 1) message = "prepare: one row cannot be used";
  for (const std::string& row : report.bad_rows) message += "\n  " + Printable(row);
  if (report.bad > static_cast<int64_t>(report.bad_rows.size())) message += "\n  …";
  const std::string skip = "--bad-rows skip goes on without them";
  throw DataError(message,
                  report.bad_hint.empty() ? skip : Printable(report.bad_hint) + "; " + skip);
}

}  // namespace

std::optional<PrepareReport> Prepare(const PrepareOptions& options) {
  const std::string tokenizer_json = options.model + "/tokenizer.json";
  if (!Exists(tokenizer_json)) {
    throw DataError("prepare: there is no " + tokenizer_json,
                    "--model names a model folder in Hugging Face's layout");
  }
  PrepareReport report;
  ReadContext(options, &report);
  const RowEncoder encoder(options.model, options.template_file, options.mask, report.context);
  report.id_end = encoder.tokenizer().IdEnd();
  report.ends_documents = encoder.ends_documents();
  std::vector<DataFile> files = FindDataFiles(options.data, /*held_out=*/false);
  if (!options.held_out_file.empty()) {
    for (DataFile& file : FindDataFiles({options.held_out_file}, /*held_out=*/true)) {
      files.push_back(std::move(file));
    }
  }
  const std::string tokenizer_sha256 = Sha256HexOfFile(tokenizer_json);
  FolderWriter writer(options.out);
  RowSource source(std::move(files));
  RowSink sink(options, &writer, &report);
  Pipeline<RowBatch, PreparedBatch> pipeline;
  pipeline.next = [&](RowBatch* batch) { return source.Next(batch); };
  pipeline.work = [&](const RowBatch& batch) {
    PreparedBatch made;
    made.path = batch.path;
    made.held_out = batch.held_out;
    made.bytes = batch.bytes;
    for (const RawRow& row : batch.rows) {
      if (options.stop && options.stop()) break;
      made.rows.push_back(PrepareRow(encoder, row));
    }
    return made;
  };
  pipeline.take = [&](const PreparedBatch& batch) { sink.Take(batch); };
  pipeline.stop = [&] { return options.stop && options.stop(); };
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  pipeline.Run(options.threads > 0 ? options.threads : cores);
  if (pipeline.stop()) return std::nullopt;
  CheckBadRows(options, report);
  sink.Finish();
  if (!options.prompts.empty()) {
    const bool chat = report.chat_tokens > 0;
    writer.AddFile(kPromptsFile, PromptsToJson(EncodePrompts(encoder, options.prompts, chat)));
  }
  nlohmann::ordered_json description = {{"tokenizer_sha256", tokenizer_sha256},
                                        {"id_end", report.id_end},
                                        {"context", report.context},
                                        {"mask", NameOfMask(options.mask)},
                                        {"parts", nlohmann::ordered_json::object()},
                                        {"report", ReportJson(report)}};
  writer.Publish(std::move(description), report.pairs.value_or(false));
  return report;
}

}  // namespace gpuctl::trainer
