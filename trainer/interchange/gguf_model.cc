#include "trainer/interchange/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/stored_file.h"
#include "trainer/interchange/gguf_file.h"
#include "trainer/interchange/gguf_tokenizer.h"
#include "trainer/interchange/pieces.h"
#include "trainer/interchange/publish.h"
#include "trainer/interchange/weight_names.h"

namespace gpuctl::trainer {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kLargestContext = std::numeric_limits<int32_t>::max();
// The number of layers by which llama.cpp knows Gemma 3 27B, whose scores it scales otherwise.
constexpr int64_t kGemma27Layers = 62;

[[noreturn]] void RefuseModel(const ModelFolder& folder, const std::string& why) {
  throw DataError("export " + folder.path + ": " + why);
}

// Refuses what llama.cpp does not compute for the family, or computes in another way.
void CheckFamily(const ModelFolder& folder, const std::string& architecture) {
  const ModelConfig& model = folder.model;
  const bool gemma = architecture == "gemma3";
  if (model.gelu != gemma) {
    RefuseModel(folder, "llama.cpp has one activation for " + architecture + ", and not this one");
  }
  if (model.rope_scaling.kind == "llama3" && architecture != "llama") {
    RefuseModel(folder, "llama.cpp has no rope type llama3 for " + architecture);
  }
  if ((gemma || architecture == "qwen3") && (model.qkv_bias || model.out_bias)) {
    RefuseModel(folder, "llama.cpp has no biases of attention for " + architecture);
  }
}

// Returns n, where each n-th layer has no window and all others have one; 0, where all have one.
int64_t WindowPeriod(const ModelFolder& folder) {
  const ModelConfig& model = folder.model;
  int64_t period = 0;
  for (int64_t layer = 0; layer < model.layers && period == 0; ++layer) {
    if (!model.HasWindow(layer)) period = layer + 1;
  }
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const bool wide = period != 0 && (layer + 1) % period == 0;
    if (wide == model.HasWindow(layer)) {
      RefuseModel(folder,
                  "llama.cpp needs each n-th layer without a window, and layer_types has "
                  "another order");
    }
  }
  return period;
}

bool HasWindows(const ModelConfig& model) {
  return std::count(model.windowed.begin(), model.windowed.end(), true) > 0;
}

// Appends windows and positions.
void AddPositions(const ModelFolder& folder, const std::string& architecture,
                  GgufMetadata* metadata, std::vector<std::string>* notes) {
  const ModelConfig& model = folder.model;
  const std::string prefix = architecture + ".";
  int64_t context = std::min(model.context, kLargestContext);
  if (HasWindows(model) && architecture == "gemma3") {
    const auto window = static_cast<uint64_t>(std::min(model.window, kLargestContext));
    metadata->AddCount(prefix + "attention.sliding_window", window);
    metadata->AddCount(prefix + "attention.sliding_window_pattern",
                       static_cast<uint64_t>(WindowPeriod(folder)));
    const double theta = model.local_rope_theta > 0 ? model.local_rope_theta : model.rope_theta;
    metadata->AddReal(prefix + "rope.freq_base_swa", theta);
  } else if (HasWindows(model) && model.window < context) {
    // Up to there, a layer with a window sees all tokens, too.
    context = model.window;
    notes->push_back("llama.cpp has no windows for " + architecture +
                     ", so the longest text is one window: " + std::to_string(context) + " tokens");
  }
  metadata->AddCount(prefix + "context_length", static_cast<uint64_t>(context));
  metadata->AddReal(prefix + "rope.freq_base", model.rope_theta);
  metadata->AddCount(prefix + "rope.dimension_count", static_cast<uint64_t>(model.head_dim()));
  if (model.rope_scaling.kind == "linear") {
    metadata->AddText(prefix + "rope.scaling.type", "linear");
    metadata->AddReal(prefix + "rope.scaling.factor", model.rope_scaling.factor);
  }
}

// Returns the name of the folder, as far as it is ASCII.
std::string NameOf(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::string name = path.substr(path.rfind('/') + 1);
  for (char& c : name) {
    if (c < 0x20 || c > 0x7e) c = '_';
  }
  return name.empty() || name == "." || name == ".." ? "model" : name;
}

GgufMetadata MetadataOf(const ModelFolder& folder, const std::string& architecture, NumberType type,
                        const std::string& pre, std::vector<std::string>* notes) {
  static const std::map<NumberType, uint64_t> kFileTypes = {{NumberType::kF32, 0},
                                                            {NumberType::kF16, 1},
                                                            {NumberType::kQ8_0, 7},
                                                            {NumberType::kBf16, 32}};
  const ModelConfig& model = folder.model;
  GgufMetadata metadata;
  metadata.AddText("general.architecture", architecture);
  metadata.AddText("general.type", "model");
  metadata.AddText("general.name", NameOf(folder.path));
  metadata.AddCount("general.file_type", kFileTypes.at(type));
  metadata.AddCount("general.quantization_version", 2);
  const auto count = [&](const char* key, int64_t value) {
    metadata.AddCount(architecture + "." + key, static_cast<uint64_t>(value));
  };
  count("vocab_size", model.vocab_size);
  count("embedding_length", model.d_model);
  count("block_count", model.layers);
  count("feed_forward_length", model.ffn);
  count("attention.head_count", model.heads);
  count("attention.head_count_kv", model.kv_heads);
  count("attention.key_length", model.head_dim());
  count("attention.value_length", model.head_dim());
  metadata.AddReal(architecture + ".attention.layer_norm_rms_epsilon", model.norm_eps);
  AddPositions(folder, architecture, &metadata, notes);
  AddTokenizer(ReadTokenFiles(folder), model.vocab_size, pre, &metadata, notes);
  return metadata;
}

// Returns what divides each rotary frequency. Source: Llama 3.1's published code, as in
// trainer/model.
std::vector<float> RopeDivisors(const ModelConfig& model) {
  const RopeScaling& scaling = model.rope_scaling;
  const auto original = static_cast<double>(scaling.original_context);
  std::vector<float> divisors;
  for (int64_t i = 0; i < model.head_dim() / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(model.head_dim());
    const double wave = 2 * kPi / std::pow(model.rope_theta, exponent);
    double divisor = 1;
    if (wave > original / scaling.low_freq_factor) {
      divisor = scaling.factor;
    } else if (wave > original / scaling.high_freq_factor) {
      const double smooth = (original / wave - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
      divisor = 1 / ((1 - smooth) / scaling.factor + smooth);
    }
    divisors.push_back(static_cast<float>(divisor));
  }
  return divisors;
}

// Returns what llama.cpp's scale of the scores must be multiplied with, which it does not read.
double ScoreFactor(const ModelConfig& model) {
  if (model.query_scale == 0) return 1;
  const int64_t size =
      model.layers == kGemma27Layers ? model.d_model / model.heads : model.head_dim();
  const double factor = model.query_scale * std::sqrt(static_cast<double>(size));
  return std::fabs(factor - 1) < 1e-9 ? 1 : factor;
}

// What happens to a weight on its way.
struct Change {
  float plus = 0;
  float times = 1;
  bool rotated = false;

  bool Any() const { return plus != 0 || times != 1; }
};

// Writes one tensor by its pieces.
void WriteTensor(const StoredPlace& place, const GgufTensor& tensor, const Change& change,
                 int64_t head_dim, const std::function<void()>& check, GgufWriter* writer) {
  const int64_t rows = tensor.shape[0];
  const int64_t columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
  const NumberType from = TypeOfDtype(place.tensor.dtype);
  const auto width = static_cast<size_t>(columns);
  const uint64_t row_bytes = BytesOf(from, width);
  const auto make = [&](int64_t first, int64_t count, Piece* piece) {
    const size_t size = static_cast<size_t>(count) * width;
    std::string stored(BytesOf(from, size), '\0');
    if (!change.rotated) {
      place.file->Read(place.tensor, static_cast<uint64_t>(first) * row_bytes, stored.size(),
                       stored.data());
    }
    for (int64_t row = first; change.rotated && row < first + count; ++row) {
      const auto source = static_cast<uint64_t>(RotatedRow(row, head_dim));
      place.file->Read(place.tensor, source * row_bytes, row_bytes,
                       stored.data() + static_cast<uint64_t>(row - first) * row_bytes);
    }
    if (from == tensor.type && !change.Any()) {
      piece->bytes.swap(stored);
      return;
    }
    std::vector<float> values(size);
    ToFloats(from, stored.data(), size, values.data());
    for (float& value : values) value = (value + change.plus) * change.times;
    piece->bytes.resize(BytesOf(tensor.type, size));
    if (!FromFloats(tensor.type, values.data(), size, piece->bytes.data())) {
      throw DataError("export " + place.file->path() + ": " + place.tensor.name +
                          " has a number that is not finite in this type",
                      "--type bf16 and f32 hold all numbers");
    }
  };
  ForPieces(rows, row_bytes, make, [&](const Piece& piece) {
    check();
    writer->Write(piece.bytes);
  });
  writer->EndTensor();
}

NumberType TypeOfMatrix(const WeightName& name, NumberType type) {
  if (name.shape.size() == 1) return NumberType::kF32;
  const bool whole = name.shape[1] % static_cast<int64_t>(kQ8Values) == 0;
  return type == NumberType::kQ8_0 && !whole ? NumberType::kF16 : type;
}

Change ChangeOf(const WeightName& name, const ModelConfig& model, const std::string& architecture) {
  const auto ends = [&](const std::string& end) {
    return name.stored.size() > end.size() &&
           name.stored.compare(name.stored.size() - end.size(), end.size(), end) == 0;
  };
  Change change;
  if (model.norm_offset && ends("norm.weight")) change.plus = 1;
  if (ends("self_attn.q_norm.weight")) change.times = static_cast<float>(ScoreFactor(model));
  change.rotated = architecture == "llama" && name.rotated_heads > 0;
  return change;
}

}  // namespace

std::string GgufArchitecture(const ModelFolder& folder) {
  const std::string type = folder.config.value("model_type", "");
  if (type == "gemma3_text") return "gemma3";
  return type == "mistral" ? "llama" : type;
}

int64_t RotatedRow(int64_t row, int64_t head_dim) {
  const int64_t inside = row % head_dim;
  return row - inside + inside % 2 * (head_dim / 2) + inside / 2;
}

GgufResult ExportGguf(const GgufExport& request) {
  const ModelFolder folder = ReadModelFolder(request.folder);
  const ModelConfig& model = folder.model;
  const std::string architecture = GgufArchitecture(folder);
  CheckFamily(folder, architecture);
  const std::map<std::string, StoredPlace> places = OpenWeights(request.folder);
  const std::vector<WeightName> names = WeightNames(model);
  CheckWeights(names, places, model.tied_head, request.folder);

  GgufResult result;
  result.type = request.type ? *request.type : TypeOfDtype(places.at(names[0].stored).tensor.dtype);
  const GgufMetadata metadata =
      MetadataOf(folder, architecture, result.type, request.pre, &result.notes);
  std::vector<GgufTensor> tensors;
  for (const WeightName& name : names) {
    tensors.push_back({name.gguf, name.shape, TypeOfMatrix(name, result.type)});
  }
  std::vector<float> divisors;
  if (model.rope_scaling.kind == "llama3") {
    divisors = RopeDivisors(model);
    const auto count = static_cast<int64_t>(divisors.size());
    tensors.push_back({"rope_freqs.weight", {count}, NumberType::kF32});
  }
  CheckGgufPlace(request.out);
  NewFile file(request.out);
  GgufWriter writer(&file, metadata, tensors);
  for (size_t i = 0; i < names.size(); ++i) {
    WriteTensor(places.at(names[i].stored), tensors[i], ChangeOf(names[i], model, architecture),
                model.head_dim(), request.check, &writer);
  }
  if (!divisors.empty()) {
    const char* bytes = reinterpret_cast<const char*>(divisors.data());
    writer.Write(std::string(bytes, divisors.size() * sizeof(float)));
    writer.EndTensor();
  }
  file.Publish();
  result.bytes = file.written();
  return result;
}

}  // namespace gpuctl::trainer
