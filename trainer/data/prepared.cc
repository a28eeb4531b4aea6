#include "trainer/data/prepared.h"

#include <algorithm>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_object.h"
#include "trainer/base/text.h"
#include "trainer/data/mapped_file.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

std::string TextAt(const json& object, const char* key, const std::string& path) {
  if (!object.contains(key) || !object[key].is_string()) {
    throw DataError("read data " + path + ": has no text \"" + key + "\"");
  }
  return object[key].get<std::string>();
}

int64_t CountAt(const json& object, const char* key, const std::string& path) {
  if (!object.contains(key) || !object[key].is_number_unsigned()) {
    throw DataError("read data " + path + ": has no count \"" + key + "\"");
  }
  return object[key].get<int64_t>();
}

json ReadDescription(const std::string& path) {
  json description = ParseJsonObject(ReadWholeFile(path, kLargestSettings), "read data " + path);
  const int64_t format = CountAt(description, "format", path);
  if (format != kPreparedFormat && format != kPairsFormat) {
    throw DataError(
        Format("read data %s: has format %lld, this program reads %lld and %lld", path.c_str(),
               static_cast<long long>(format), static_cast<long long>(kPreparedFormat),
               static_cast<long long>(kPairsFormat)),
        "prepare the data with the same version of gpuctl");
  }
  return description;
}

// Refuses a file that was exchanged or cut off at the end of a row.
void CheckCounts(const json& description, const std::string& path, const char* part,
                 const TokenRows& rows) {
  if (!description.contains("parts") || !description["parts"].is_object() ||
      !description["parts"].contains(part) || !description["parts"][part].is_object()) {
    throw DataError("read data " + path + ": has no part \"" + part + "\"");
  }
  const json& of = description["parts"][part];
  if (CountAt(of, "rows", path) != rows.rows() || CountAt(of, "tokens", path) != rows.tokens()) {
    throw DataError("read data " + path + ": " + part + kTokensSuffix + " has other rows than that",
                    "prepare the data again");
  }
}

// Refuses rows that are no pairs: answers to two prompts, or without a learned token.
void CheckPairs(const TokenRows& rows) {
  const auto refuse = [&](int64_t row, const char* why) {
    throw DataError(
        Format("read data %s: row %lld %s", rows.path().c_str(), static_cast<long long>(row), why),
        "prepare the data again");
  };
  if (rows.rows() % 2 != 0) refuse(rows.rows() - 1, "has no other one to be a pair with");
  for (int64_t row = 0; row < rows.rows(); ++row) {
    const int64_t prompt = PromptTokens(rows.Words(row), rows.Size(row));
    if (prompt == rows.Size(row)) refuse(row, "of a pair has no learned token");
    if (row % 2 == 0) continue;
    const uint32_t* chosen = rows.Words(row - 1);
    if (PromptTokens(chosen, rows.Size(row - 1)) != prompt ||
        !std::equal(chosen, chosen + prompt, rows.Words(row))) {
      refuse(row, "has another prompt than the other one of its pair");
    }
  }
}

}  // namespace

int64_t PromptTokens(const uint32_t* words, int64_t size) {
  int64_t tokens = std::min<int64_t>(size, 1);
  while (tokens < size && (words[tokens] & kLearnedBit) == 0) ++tokens;
  return tokens;
}

TokenRows::TokenRows(const std::string& folder, const std::string& part)
    : path_(folder + "/" + part + kTokensSuffix) {
  const std::string& tokens_path = path_;
  const std::string ends_path = folder + "/" + part + kEndsSuffix;
  const auto tokens = std::make_shared<MappedFile>(tokens_path);
  const auto ends = std::make_shared<MappedFile>(ends_path);
  if (tokens->size() % sizeof(uint32_t) != 0) {
    throw DataError("read data " + tokens_path + ": is cut off");
  }
  if (ends->size() % sizeof(uint64_t) != 0)
    throw DataError("read data " + ends_path + ": is cut off");
  words_ = static_cast<const uint32_t*>(tokens->bytes());
  ends_ = static_cast<const uint64_t*>(ends->bytes());
  rows_ = static_cast<int64_t>(ends->size() / sizeof(uint64_t));
  words_owner_ = tokens;
  ends_owner_ = ends;
  files_ = {tokens.get(), ends.get()};
  uint64_t end = 0;
  for (int64_t row = 0; row < rows_; ++row) {
    if (ends_[row] < end + 2 || ends_[row] > tokens->size() / sizeof(uint32_t)) {
      throw DataError(Format("read data %s: row %lld has no valid end", ends_path.c_str(),
                             static_cast<long long>(row)));
    }
    end = ends_[row];
  }
  if (end != tokens->size() / sizeof(uint32_t)) {
    throw DataError("read data " + tokens_path + ": does not end with its last row");
  }
}

TokenRows::TokenRows(const std::vector<std::vector<uint32_t>>& rows) {
  const auto words = std::make_shared<std::vector<uint32_t>>();
  const auto ends = std::make_shared<std::vector<uint64_t>>();
  for (const std::vector<uint32_t>& row : rows) {
    words->insert(words->end(), row.begin(), row.end());
    ends->push_back(words->size());
  }
  words_ = words->data();
  ends_ = ends->data();
  rows_ = static_cast<int64_t>(rows.size());
  words_owner_ = words;
  ends_owner_ = ends;
}

void TokenRows::CheckWhole() const {
  for (const MappedFile* file : files_) file->CheckWhole();
}

bool IsPrepared(const std::string& folder) { return Exists(folder + "/" + kDatasetFile); }

PreparedData OpenPrepared(const std::string& folder) {
  const std::string path = folder + "/" + kDatasetFile;
  json description = ReadDescription(path);
  PreparedData data{{},
                    TextAt(description, "digest", path),
                    TextAt(description, "tokenizer_sha256", path),
                    CountAt(description, "id_end", path),
                    CountAt(description, "format", path) == kPairsFormat,
                    TokenRows(folder, kTrainPart),
                    TokenRows(folder, kHeldOutPart)};
  CheckCounts(description, path, kTrainPart, data.train);
  CheckCounts(description, path, kHeldOutPart, data.held_out);
  if (data.pairs) {
    CheckPairs(data.train);
    CheckPairs(data.held_out);
  }
  data.description = std::move(description);
  return data;
}

void CheckFitsModel(const PreparedData& data, const std::string& folder, int64_t vocabulary,
                    const std::string& tokenizer_sha256) {
  if (!tokenizer_sha256.empty() && tokenizer_sha256 != data.tokenizer_sha256) {
    throw DataError("read data " + folder + ": it has the tokens of another tokenizer.json",
                    "prepare it with this model");
  }
  if (data.id_end > vocabulary) {
    throw DataError(Format("read data %s: its tokenizer has ids up to %lld; the model has %lld "
                           "tokens",
                           folder.c_str(), static_cast<long long>(data.id_end - 1),
                           static_cast<long long>(vocabulary)),
                    "prepare it with this model");
  }
}

}  // namespace gpuctl::trainer
