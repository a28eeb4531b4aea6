// The comparison with the formulas in Python is in tests/moments.py.

#include "trainer/optimizer/moments.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "trainer/tests/expect_error.h"
#include "trainer/tests/tensors.h"

namespace gpuctl::trainer {
namespace {

constexpr CodeKind kBothKinds[] = {CodeKind::kMean, CodeKind::kSquare};

struct Coded {
  explicit Coded(int64_t count, c10::Device device = c10::kCPU)
      : codes(at::zeros({count}, at::TensorOptions(at::kByte).device(device))),
        largest(at::zeros({CodeBlocks(count)}, at::TensorOptions(at::kFloat).device(device))) {}
  at::Tensor codes;
  at::Tensor largest;
};

at::Tensor RoundTrip(CodeKind kind, const at::Tensor& numbers) {
  const Coded coded(numbers.numel());
  at::Tensor back = at::empty_like(numbers);
  Encode(kind, numbers, coded.codes, coded.largest);
  Decode(kind, coded.codes, coded.largest, back);
  return back;
}

// Returns numbers over many orders of magnitude, of both signs or not.
at::Tensor WideNumbers(CodeKind kind, int64_t count, uint64_t sub) {
  const at::Tensor spread = RandomTensor({count}, at::kFloat, sub).mul(4).exp();
  return kind == CodeKind::kSquare ? spread : spread * RandomTensor({count}, at::kFloat, sub + 1);
}

// Encodes one number beside 1, so that its magnitude is the unit.
uint8_t CodeOf(CodeKind kind, float number) {
  const float pair[] = {number, 1.0f};
  uint8_t codes[2];
  float largest = 0;
  EncodeBlock(kind, 2, pair, codes, &largest);
  return codes[0];
}

// Returns the code of the nearest value by looking at all of them.
uint8_t NearestCode(CodeKind kind, float number) {
  const std::array<float, 256>& values = CodeValues(kind);
  size_t best = 0;
  double least = 10;
  for (size_t code = 0; code < values.size(); ++code) {
    const double away = std::fabs(static_cast<double>(values[code]) - static_cast<double>(number));
    const bool nearer_to_0 = std::fabs(values[code]) < std::fabs(values[best]);
    if (away < least || (away == least && nearer_to_0)) best = code;
    least = std::min(least, away);
  }
  if (kind == CodeKind::kSquare && number > 0 && best == 0) best = 1;
  return static_cast<uint8_t>(best);
}

TEST(BlockCodeTest, TheListsAreAscendingWithAllDecades) {
  for (const CodeKind kind : kBothKinds) {
    const std::array<float, 256>& values = CodeValues(kind);
    EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
    EXPECT_EQ(std::adjacent_find(values.begin(), values.end()), values.end());
    EXPECT_EQ(values[255], 1.0f);
  }
  EXPECT_EQ(CodeValues(CodeKind::kSquare)[0], 0.0f);
  EXPECT_FLOAT_EQ(CodeValues(CodeKind::kSquare)[1], 3.25e-7f);
  EXPECT_EQ(CodeValues(CodeKind::kMean)[127], 0.0f);
  EXPECT_FLOAT_EQ(CodeValues(CodeKind::kMean)[128], 5.5e-7f);
  EXPECT_FLOAT_EQ(CodeValues(CodeKind::kMean)[0], -0.99296875f);
}

TEST(BlockCodeTest, EachNumberGetsTheNearestValue) {
  for (const CodeKind kind : kBothKinds) {
    const std::array<float, 256>& values = CodeValues(kind);
    std::vector<float> tried = {0.0f, -0.0f, 1e-30f, 1.0f};
    for (size_t code = 0; code < 255; ++code) {
      const float middle = (values[code] + values[code + 1]) / 2;
      for (const float number : {values[code], middle}) {
        for (const float toward : {-2.0f, 2.0f}) {
          float near = number;
          for (int i = 0; i < 3; ++i) {
            tried.push_back(near);
            near = std::nextafter(near, toward);
          }
        }
      }
    }
    for (uint64_t i = 0; i < 20000; ++i) {
      const double exponent = -8 * RandomUniform(3, RandomStream::kBench, 0, i);
      tried.push_back(static_cast<float>(std::pow(10.0, exponent)) * (i % 2 == 0 ? 1.0f : -1.0f));
    }
    for (const float number : tried) {
      if (kind == CodeKind::kSquare && number < 0) continue;
      if (std::fabs(number) > 1) continue;
      ASSERT_EQ(CodeOf(kind, number), NearestCode(kind, number)) << number;
    }
  }
}

TEST(BlockCodeTest, NoPositiveSquareBecomesZero) {
  const at::Tensor numbers = WideNumbers(CodeKind::kSquare, 5000, 1);
  EXPECT_EQ(numbers.gt(0).sum().item<int64_t>(), 5000);
  EXPECT_EQ(RoundTrip(CodeKind::kSquare, numbers).gt(0).sum().item<int64_t>(), 5000);
  EXPECT_GT(RoundTrip(CodeKind::kMean, at::tensor({1e-9f, 1.0f}))[1].item<float>(), 0.9f);
  EXPECT_EQ(RoundTrip(CodeKind::kMean, at::tensor({1e-9f, 1.0f}))[0].item<float>(), 0.0f);
  const at::Tensor nothing = at::zeros({300});
  for (const CodeKind kind : kBothKinds) EXPECT_TRUE(at::equal(RoundTrip(kind, nothing), nothing));
}

TEST(BlockCodeTest, EveryMagnitudeOfABlockIsBorne) {
  for (const float size : {1e-45f, 1e-39f, 1e-20f, 1e20f, std::numeric_limits<float>::max()}) {
    const at::Tensor numbers = at::tensor({size, -size, 0.0f, size / 2});
    const at::Tensor back = RoundTrip(CodeKind::kMean, numbers);
    EXPECT_TRUE(at::isfinite(back).all().item<bool>()) << size;
    EXPECT_EQ(back[0].item<float>(), size);
    EXPECT_EQ(back[2].item<float>(), 0.0f);
  }
}

TEST(BlockCodeTest, TensorsAndLoopsGiveTheSame) {
  for (const CodeKind kind : kBothKinds) {
    for (const int64_t count : {1, 255, 256, 257, 10000}) {
      at::Tensor numbers = WideNumbers(kind, count, 10);
      numbers.narrow(0, 0, count / 3).zero_();
      const Coded loops(count), tensors(count, TestDevice());
      Encode(kind, numbers, loops.codes, loops.largest);
      EncodeByTensors(kind, numbers.to(TestDevice()), tensors.codes, tensors.largest);
      EXPECT_TRUE(at::equal(loops.codes, tensors.codes.cpu())) << count;
      EXPECT_TRUE(at::equal(loops.largest, tensors.largest.cpu())) << count;
      at::Tensor one = at::empty({count}), other = at::empty({count}, tensors.largest.options());
      Decode(kind, loops.codes, loops.largest, one);
      DecodeByTensors(kind, tensors.codes, tensors.largest, other);
      EXPECT_TRUE(at::equal(one, other.cpu())) << count;
      const at::Tensor error = (one - numbers).abs() / numbers.abs().max();
      EXPECT_LT(error.max().item<float>(), 0.01f);
    }
  }
}

// A matrix of two slices that are no whole blocks, a small one, and one that is frozen.
std::vector<ParameterSpec> SomeSpecs() {
  return {{{70, 101}, true, 1, 0, {{"q", 0, 31}, {"k", 31, 39}}},
          {{33}, false, 0, 1, {{"norm", 0, 33}}},
          {{90, 90}, true, 1, 0, {{"frozen", 0, 90}}}};
}
const std::vector<bool> kLastFrozen = {false, false, true};
const c10::Device kCpu(c10::kCPU);

std::map<std::string, at::Tensor> CopiesOf(const Moments& moments) {
  NamedTensors named;
  moments.AppendTo(&named);
  std::map<std::string, at::Tensor> copies;
  for (const auto& [name, tensor] : named) copies[name] = tensor.clone();
  return copies;
}

void ExpectEqual(const std::map<std::string, at::Tensor>& a,
                 const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
}

// Updates the first parameter three times, in pieces that end near `ends`. Returns it.
at::Tensor UpdateInPieces(const Moments& moments, const std::vector<int64_t>& ends) {
  const at::Tensor master = RandomTensor({70, 101}, at::kFloat, 3);
  for (int64_t t = 1; t <= 3; ++t) {
    const at::Tensor gradient = RandomTensor({70, 101}, at::kFloat, 20 + static_cast<uint64_t>(t));
    int64_t begin = 0;
    for (const int64_t wanted : ends) {
      const int64_t end = moments.NextCut(0, wanted);
      moments.UpdateCpu(0, AdamwStep{1e-2, 0.9, 0.95, 1e-8, 0.1, t}, begin, end, 0.5f,
                        gradient.data_ptr<float>(), master.data_ptr<float>());
      begin = end;
    }
  }
  return master;
}

TEST(MomentsTest, PiecesChangeNoBit) {
  const std::vector<ParameterSpec> specs = SomeSpecs();
  const int64_t count = 70 * 101;
  const Moments whole(specs, kLastFrozen, true, kCpu), parted(specs, kLastFrozen, true, kCpu);
  const at::Tensor expected = UpdateInPieces(whole, {count});
  const at::Tensor found = UpdateInPieces(parted, {1, 300, 3130, 3131, 3132, 5000, count});
  EXPECT_TRUE(at::equal(found, expected));
  ExpectEqual(CopiesOf(parted), CopiesOf(whole));
  for (const int64_t wanted :
       std::vector<int64_t>{0, 1, 256, 257, 3130, 3131, 3132, count - 1, count}) {
    const int64_t cut = whole.NextCut(0, wanted);
    EXPECT_TRUE(cut >= wanted && cut < wanted + 256 && cut <= count) << wanted;
    EXPECT_EQ(whole.NextCut(0, cut), cut);
    EXPECT_EQ(whole.NextCut(1, std::min<int64_t>(wanted, 33)), std::min<int64_t>(wanted, 33));
  }
}

TEST(MomentsTest, TensorsUpdateLikeLoops) {
  const std::vector<ParameterSpec> specs = SomeSpecs();
  const Moments loops(specs, kLastFrozen, true, kCpu),
      tensors(specs, kLastFrozen, true, TestDevice());
  const at::Tensor expected = UpdateInPieces(loops, {70 * 101});
  const at::Tensor master = RandomOnDevice({70, 101}, at::kFloat, 3);
  for (int64_t t = 1; t <= 3; ++t) {
    tensors.Update(0, {1e-2, 0.9, 0.95, 1e-8, 0.1, t}, master,
                   RandomOnDevice({70, 101}, at::kFloat, 20 + static_cast<uint64_t>(t)),
                   at::full({}, 0.5, master.options()));
  }
  EXPECT_LT(RelativeDifference(master, expected), 1e-4);
  const auto a = CopiesOf(loops), b = CopiesOf(tensors);
  for (const char* name : {"exp_avg.q", "exp_avg.k", "exp_avg_sq.q", "exp_avg_sq.k"}) {
    // A last bit may choose the value beside.
    const at::Tensor away = (a.at(name).to(at::kInt) - b.at(name).cpu().to(at::kInt)).abs();
    EXPECT_LE(away.max().item<int>(), 1) << name;
    EXPECT_LT(away.to(at::kFloat).mean().item<float>(), 1e-3f) << name;
  }
}

TEST(MomentsTest, SmallOnesStayWideAndFrozenOnesHaveNone) {
  const std::vector<ParameterSpec> specs = SomeSpecs();
  const auto named = CopiesOf(Moments(specs, kLastFrozen, true, kCpu));
  std::vector<std::string> names;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : named) {
    names.push_back(name);
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"exp_avg.k", "exp_avg.norm", "exp_avg.q",
                                             "exp_avg_absmax.k", "exp_avg_absmax.q", "exp_avg_sq.k",
                                             "exp_avg_sq.norm", "exp_avg_sq.q",
                                             "exp_avg_sq_absmax.k", "exp_avg_sq_absmax.q"}));
  EXPECT_EQ(named.at("exp_avg_sq.k").sizes(), (at::IntArrayRef{39, 101}));
  EXPECT_EQ(named.at("exp_avg.norm").scalar_type(), at::kFloat);
  EXPECT_EQ(bytes, MomentBytes(specs[0], true) + MomentBytes(specs[1], true));
  EXPECT_EQ(MomentBytes(specs[1], true), 8 * 33);
  EXPECT_EQ(MomentBytes(specs[0], false), 8 * 70 * 101);
  const ParameterSpec large = {{4096, 4096}, true, 1, 0, {{"w", 0, 4096}}};
  EXPECT_EQ(MomentBytes(large, true), 4096 * 4096 * 2 + 4096 * 4096 / 256 * 8);
}

TEST(MomentsTest, StoredOnesComeBackAndTheOtherFormIsConverted) {
  const std::vector<ParameterSpec> specs = SomeSpecs();
  const Moments first(specs, kLastFrozen, true, kCpu), again(specs, kLastFrozen, true, kCpu);
  UpdateInPieces(first, {70 * 101});
  const auto stored = CopiesOf(first);
  again.Load(stored, "test");
  ExpectEqual(CopiesOf(again), stored);
  const Moments wide(specs, kLastFrozen, false, kCpu);
  wide.Load(stored, "test");
  const auto in_fp32 = CopiesOf(wide);
  at::Tensor expected = at::empty({39 * 101});
  Decode(CodeKind::kSquare, stored.at("exp_avg_sq.k").view({-1}), stored.at("exp_avg_sq_absmax.k"),
         expected);
  EXPECT_TRUE(at::equal(in_fp32.at("exp_avg_sq.k").view({-1}), expected));
  EXPECT_GT(expected.max().item<float>(), 0);
  const Moments back(specs, kLastFrozen, true, kCpu);
  back.Load(in_fp32, "test");
  for (const auto& [name, tensor] : CopiesOf(back)) {
    // Means change where the largest magnitude of a block is negative: there is no code for -1.
    if (name.rfind("exp_avg_sq", 0) != 0) continue;
    EXPECT_TRUE(at::equal(tensor, stored.at(name))) << name;
  }
}

TEST(MomentsTest, WhatCannotBeAMomentIsRefused) {
  const std::vector<ParameterSpec> specs = SomeSpecs();
  const Moments moments(specs, kLastFrozen, true, kCpu);
  UpdateInPieces(moments, {70 * 101});
  const auto good = CopiesOf(moments);
  const auto refused = [&](const std::string& name, const at::Tensor& tensor, const char* part) {
    auto bad = good;
    if (tensor.defined()) {
      bad[name] = tensor;
    } else {
      bad.erase(name);
    }
    EXPECT_ERROR(Moments(specs, kLastFrozen, true, kCpu).Load(bad, "test"), ExitCode::kBadData,
                 part);
    EXPECT_ERROR(Moments(specs, kLastFrozen, false, kCpu).Load(bad, "test"), ExitCode::kBadData,
                 part);
  };
  const auto with = [&](const std::string& name, double value) {
    at::Tensor tensor = good.at(name).clone();
    tensor.view({-1})[3] = value;
    return tensor;
  };
  refused("exp_avg.q", {}, "exp_avg.q is missing");
  refused("exp_avg_absmax.q", {}, "exp_avg_absmax.q is missing");
  refused("exp_avg_sq_absmax.k", at::zeros({15}), "exp_avg_sq_absmax.k has another shape");
  refused("exp_avg_sq_absmax.k", at::zeros({16, 1}), "exp_avg_sq_absmax.k has another shape");
  refused("exp_avg.q", at::zeros({30, 101}, at::kByte), "exp_avg.q has another shape");
  refused("exp_avg.q", at::zeros({31, 101}, at::kChar), "exp_avg.q has another dtype");
  refused("exp_avg_absmax.q", with("exp_avg_absmax.q", std::nan("")), "not finite");
  refused("exp_avg_absmax.q", with("exp_avg_absmax.q", INFINITY), "not finite");
  refused("exp_avg_absmax.q", with("exp_avg_absmax.q", -1), "has a negative value");
  refused("exp_avg.norm", with("exp_avg.norm", std::nan("")), "exp_avg.norm has a value");
  refused("exp_avg_sq.norm", with("exp_avg_sq.norm", -1), "exp_avg_sq.norm has a negative");
}

// What is small beside others in its block must not step far: its square would become 0.
TEST(MomentsTest, SmallGradientsBesideLargeOnesDoNotLeap) {
  const std::vector<ParameterSpec> specs = {{{64, 64}, true, 1, 0, {{"w", 0, 64}}}};
  const Moments moments(specs, {false}, true, kCpu);
  at::Tensor gradient = at::full({64 * 64}, 1e-5), master = at::zeros({64 * 64});
  gradient.slice(0, 0, 64 * 64, 256).fill_(1.0);
  double largest = 0;
  for (int64_t t = 1; t <= 50; ++t) {
    const at::Tensor before = master.clone();
    // The small ones vanish at times, so that their mean lives on its square alone.
    const at::Tensor now = t % 5 == 0 ? gradient * gradient.gt(0.5).to(at::kFloat) : gradient;
    moments.UpdateCpu(0, AdamwStep{1e-3, 0.9, 0.95, 1e-8, 0, t}, 0, 64 * 64, 1.0f,
                      now.data_ptr<float>(), master.data_ptr<float>());
    largest = std::max(largest, (master - before).abs().max().item<double>());
  }
  EXPECT_LT(largest, 2e-3);  // exact AdamW: 1e-3
}

}  // namespace
}  // namespace gpuctl::trainer
