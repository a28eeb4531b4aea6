#include "trainer/checkpoint/describe_folder.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/folder_files.h"
#include "trainer/checkpoint/stored_file.h"

namespace gpuctl::trainer {
namespace {

// Returns the text of a key, or "".
std::string TextOf(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<StoredTensor> TensorsOf(const std::string& path, bool adapter) {
  std::vector<StoredTensor> tensors;
  if (adapter) {
    tensors = StoredFile(path + "/" + FilesOfCheckpoint(true).tensors).tensors();
  } else {
    for (const auto& [name, place] : OpenWeights(path)) tensors.push_back(place.tensor);
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  return tensors;
}

std::optional<int64_t> StepOf(const std::string& path) {
  const nlohmann::json state = ReadJsonObject(path + "/state.json");
  const auto step = state.find("step");
  if (step == state.end() || !step->is_number_unsigned()) {
    RefuseCheckpoint(path, "state.json has no step");
  }
  return step->get<int64_t>();
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t extent : shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  }
  return text;
}

}  // namespace

FolderContent DescribeFolder(const std::string& path) {
  if (!IsDirectory(path)) throw DataError("inspect " + path + ": no such directory");
  FolderContent content;
  const bool checkpoint = Exists(path + "/" + kManifestName);
  content.adapter = HoldsAdapter(path);
  const std::string config = path + "/" + FilesOfCheckpoint(content.adapter).config;
  if (!checkpoint && !Exists(config)) {
    throw DataError("inspect " + path +
                        ": it is no checkpoint and no model folder: it has no manifest.json, no "
                        "config.json and no adapter_config.json",
                    "name the folder of one checkpoint, such as step-00000020");
  }
  if (checkpoint) {
    content.files = VerifyCheckpoint(path);
    content.step = StepOf(path);
    const nlohmann::json state = ReadJsonObject(path + "/state.json");
    const auto processes = state.find("processes");
    if (processes != state.end() && processes->is_number_unsigned()) {
      content.processes = processes->get<int64_t>();
    }
  }
  content.kind = TextOf(ReadJsonObject(config), content.adapter ? "peft_type" : "model_type");
  content.tensors = TensorsOf(path, content.adapter);
  for (const StoredTensor& tensor : content.tensors) {
    content.bytes += tensor.end - tensor.begin;
    content.elements += (tensor.end - tensor.begin) / SafetensorsElementSize(tensor.dtype);
  }
  return content;
}

std::string FolderText(const FolderContent& content) {
  std::string text;
  for (const ManifestEntry& entry : content.files) {
    text += Format("%-24s %12llu bytes  sha256 %s\n", entry.path.c_str(),
                   static_cast<unsigned long long>(entry.size), entry.sha256.c_str());
  }
  if (content.step.has_value()) {
    text += Format(
        "step %lld%s, every file matches the manifest\n", static_cast<long long>(*content.step),
        content.processes > 1
            ? Format(" of %lld processes", static_cast<long long>(content.processes)).c_str()
            : "");
  }
  for (const StoredTensor& tensor : content.tensors) {
    text += Format("  %-56s %-9s [%s]\n", Printable(tensor.name).c_str(), tensor.dtype.c_str(),
                   ShapeText(tensor.shape).c_str());
  }
  const std::string kind = content.kind.empty() ? "" : Printable(content.kind) + ", ";
  return text + Format("%s%s%zu tensors, %llu elements, %llu bytes\n",
                       content.adapter ? "adapter, " : "", kind.c_str(), content.tensors.size(),
                       static_cast<unsigned long long>(content.elements),
                       static_cast<unsigned long long>(content.bytes));
}

}  // namespace gpuctl::trainer
