#include "trainer/model/pretrained.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <map>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/model/finite.h"
#include "trainer/model/parameters.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kNamesShown = 3;

// Returns "a, b, c and 4 more".
std::string ListOf(const std::vector<std::string>& names) {
  std::string list;
  for (size_t i = 0; i < names.size() && i < kNamesShown; ++i) {
    list += (list.empty() ? "" : ", ") + names[i];
  }
  if (names.size() > kNamesShown) {
    list += " and " + std::to_string(names.size() - kNamesShown) + " more";
  }
  return list;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(extent);
  }
  return text + "]";
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::map<std::string, std::vector<int64_t>> StoredShapes(const std::vector<ParameterSpec>& specs) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const ParameterSpec& spec : specs) {
    for (const RowSlice& slice : spec.slices) {
      std::vector<int64_t> shape = spec.shape;
      shape[0] = slice.rows;
      shapes[slice.name] = shape;
    }
  }
  return shapes;
}

void CheckStoredShapes(const std::map<std::string, std::vector<int64_t>>& shapes,
                       const std::map<std::string, StoredTensor>& stored,
                       const std::function<bool(const std::string&)>& unused,
                       const std::string& doing) {
  std::vector<std::string> missing, other, many;
  for (const auto& [name, shape] : shapes) {
    const auto found = stored.find(name);
    if (found == stored.end()) {
      missing.push_back(name);
    } else if (found->second.shape != shape) {
      other.push_back(name + " is " + ShapeText(found->second.shape) + ", not " + ShapeText(shape));
    }
  }
  for (const auto& [name, tensor] : stored) {
    if (shapes.count(name) == 0 && !unused(name)) many.push_back(name);
  }
  std::string why;
  if (!missing.empty()) why += "; missing: " + ListOf(missing);
  if (!other.empty()) why += "; another shape: " + ListOf(other);
  if (!many.empty()) why += "; not a part of this model: " + ListOf(many);
  if (!why.empty()) throw DataError(doing + why);
}

namespace {

StoredWeights OpenChecked(const std::string& folder, const ModelConfig& model) {
  StoredWeights stored(folder);
  const auto unused = [&](const std::string& name) {
    return EndsWith(name, "rotary_emb.inv_freq") || (model.tied_head && name == "lm_head.weight") ||
           (model.cut && BlockOfName(name) >= model.layers);
  };
  CheckStoredShapes(StoredShapes(ParameterSpecs(model)), stored.tensors(), unused,
                    "read weights " + folder + ": they are not those of config.json");
  return stored;
}

std::vector<at::Tensor> ReadAll(const std::string& folder, const ModelConfig& model,
                                const at::TensorOptions& options,
                                const std::function<at::Tensor(size_t, at::Tensor)>& keep,
                                FileDigests* sha256) {
  const at::NoGradGuard no_grad;
  const std::vector<ParameterSpec> specs = ParameterSpecs(model);
  const StoredWeights stored = OpenChecked(folder, model);
  std::vector<at::Tensor> flat(specs.size());
  std::vector<size_t> missing;  // pieces of each weight
  std::map<std::string, std::pair<size_t, const RowSlice*>> places;
  for (const ParameterSpec& spec : specs) {
    for (const RowSlice& slice : spec.slices) places[slice.name] = {missing.size(), &slice};
    missing.push_back(spec.slices.size());
  }
  const auto target = [&](const std::string& name) -> at::Tensor {
    const auto found = places.find(name);
    if (found == places.end()) return {};
    const auto& [index, slice] = found->second;
    if (!flat[index].defined()) flat[index] = at::empty(specs[index].shape, options);
    return flat[index].narrow(0, slice->first_row, slice->rows);
  };
  const auto done = [&](const std::string& name) {
    const size_t index = places.at(name).first;
    if (--missing[index] > 0) return;
    CheckFinite(specs[index], flat[index], "read weights " + folder);
    flat[index] = keep(index, std::move(flat[index]));
  };
  stored.ReadEach(target, done, sha256);
  return flat;
}

}  // namespace

void CheckPretrained(const std::string& folder, const ModelConfig& model) {
  OpenChecked(folder, model);
}

std::vector<at::Tensor> ReadPretrained(const std::string& folder, const ModelConfig& model,
                                       const at::TensorOptions& options, FileDigests* sha256) {
  return ReadAll(
      folder, model, options, [](size_t, at::Tensor weight) { return weight; }, sha256);
}

std::vector<at::Tensor> ReadPretrained(const std::string& folder, const ModelConfig& model,
                                       const std::function<at::Tensor(size_t, at::Tensor)>& keep,
                                       FileDigests* sha256) {
  return ReadAll(folder, model, at::TensorOptions(at::kFloat), keep, sha256);
}

}  // namespace gpuctl::trainer
