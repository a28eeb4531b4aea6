#include "tests/soak/liar.h"

#include <limits>
#include <vector>

namespace gpuctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int64_t kNumbers[] = {0,
                                1,
                                -1,
                                2,
                                255,
                                4096,
                                (1 << 20) + 1,
                                std::numeric_limits<int32_t>::max(),
                                std::numeric_limits<int32_t>::min(),
                                int64_t{1} << 32,
                                (int64_t{1} << 53) + 1,
                                std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::max() - 4095,
                                std::numeric_limits<int64_t>::min()};

constexpr double kFractions[] = {0, -1, 1e308, -1e308, 1e-308, 0.5};

// The names contain `lied`, by which a round finds what was written where nobody asked for it.
const char* const kTexts[] = {"",
                              ".",
                              "..",
                              "/",
                              "../../lied",
                              "../lied",
                              "/tmp/lied",
                              "work/../../lied",
                              "ckpt/step-00000001",
                              "ckpt/../../../lied",
                              "out/result",
                              "work/out/result",
                              "\x1b]0;lied\x07",
                              "\x1b[2J\x1b[31mlied",
                              "\nHINT: FORGED",
                              "\rgpuctl: FORGED",
                              "\xe2\x80\xae lied",
                              "-lied",
                              "--",
                              "$(touch lied)",
                              "`touch lied`",
                              "a/b/c/d/e/f/g/lied",
                              "step-00000001/manifest.json",
                              "NaN",
                              "n-0000000000000000",
                              "j-000000000000",
                              "limit:time",
                              "exited"};
const char* const kBytes[] = {
    "\x9b"
    "2J",
    "\xff\xfe", "\xc0\xaf..\xc0\xaf", "\xed\xa0\x80"};

}  // namespace

bool Liar::Chance(double probability) {
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

uint64_t Liar::Below(uint64_t limit) { return random_() % limit; }

int64_t Liar::Number() {
  if (Chance(0.2)) return static_cast<int64_t>(random_());
  return kNumbers[Below(std::size(kNumbers))];
}

std::string Liar::Text(bool is_utf8) {
  if (Chance(0.05)) return std::string(Below(Chance(0.1) ? 3 << 20 : 70000), 'z');
  if (!is_utf8 && Chance(0.3)) return kBytes[Below(std::size(kBytes))];
  if (!is_utf8 && Chance(0.1)) return std::string("a\0b", 3);
  std::string text = kTexts[Below(std::size(kTexts))];
  if (Chance(0.2)) text += kTexts[Below(std::size(kTexts))];
  return text;
}

void Liar::Lie(Message& message) {
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) LieField(message, *type.field(i));
}

void Liar::LieField(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) {
    LieRepeated(message, field);
    return;
  }
  const bool is_message = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  // A member of a oneof that is not there stays away: another kind of frame is another lie.
  if (is_message && reflection.HasField(message, &field)) {
    Lie(*reflection.MutableMessage(&message, &field));
  }
  if (!Chance(chance_)) return;
  if (Chance(0.3)) {
    reflection.ClearField(&message, &field);
  } else if (!is_message) {
    Set(message, field, -1);
  } else if (field.real_containing_oneof() == nullptr || Chance(0.1)) {
    Lie(*reflection.MutableMessage(&message, &field));
  }
}

void Liar::LieRepeated(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  const int size = reflection.FieldSize(message, &field);
  for (int i = 0; i < size && i < 2000; ++i) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!field.is_map()) Lie(*reflection.MutableRepeatedMessage(&message, &field, i));
    } else if (Chance(chance_)) {
      Set(message, field, i);
    }
  }
  if (!Chance(chance_) || field.is_map()) return;
  switch (Below(4)) {
    case 0:
      reflection.ClearField(&message, &field);
      return;
    case 1:
      if (size > 1)
        reflection.SwapElements(&message, &field, 0,
                                static_cast<int>(Below(static_cast<uint64_t>(size))));
      return;
    default:
      break;
  }
  const uint64_t more = Chance(0.05) ? Below(20000) : Below(4);
  for (uint64_t i = 0; i < more; ++i) {
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      Set(message, field, reflection.FieldSize(message, &field));
      continue;
    }
    Message* const added = reflection.AddMessage(&message, &field);
    // The same again, or one that is all lies.
    if (size > 0 && Chance(0.5)) {
      added->CopyFrom(reflection.GetRepeatedMessage(
          message, &field, static_cast<int>(Below(static_cast<uint64_t>(size)))));
    } else {
      Lie(*added);
    }
  }
}

// Sets a field that is no message. `index`: which of a repeated one, its size to add one; -1: it is
// not repeated.
void Liar::Set(Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const auto put = [&](auto set, auto set_repeated, auto add, auto value) {
    if (index < 0) {
      (reflection.*set)(&message, &field, value);
    } else if (index < reflection.FieldSize(message, &field)) {
      (reflection.*set_repeated)(&message, &field, index, value);
    } else {
      (reflection.*add)(&message, &field, value);
    }
  };
  using R = Reflection;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return put(&R::SetInt32, &R::SetRepeatedInt32, &R::AddInt32, static_cast<int32_t>(Number()));
    case FieldDescriptor::CPPTYPE_INT64:
      return put(&R::SetInt64, &R::SetRepeatedInt64, &R::AddInt64, Number());
    case FieldDescriptor::CPPTYPE_UINT32:
      return put(&R::SetUInt32, &R::SetRepeatedUInt32, &R::AddUInt32,
                 static_cast<uint32_t>(Number()));
    case FieldDescriptor::CPPTYPE_UINT64:
      return put(&R::SetUInt64, &R::SetRepeatedUInt64, &R::AddUInt64,
                 static_cast<uint64_t>(Number()));
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double lies[] = {kFractions[Below(std::size(kFractions))],
                             std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()};
      return put(&R::SetDouble, &R::SetRepeatedDouble, &R::AddDouble, lies[Below(3)]);
    }
    case FieldDescriptor::CPPTYPE_FLOAT:
      return put(&R::SetFloat, &R::SetRepeatedFloat, &R::AddFloat,
                 std::numeric_limits<float>::quiet_NaN());
    case FieldDescriptor::CPPTYPE_BOOL:
      return put(&R::SetBool, &R::SetRepeatedBool, &R::AddBool, Chance(0.5));
    case FieldDescriptor::CPPTYPE_ENUM:
      return put(&R::SetEnumValue, &R::SetRepeatedEnumValue, &R::AddEnumValue,
                 Chance(0.8) ? static_cast<int>(Below(9)) : static_cast<int>(Number()));
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text = Text(field.type() == FieldDescriptor::TYPE_STRING && !Chance(0.05));
      if (index < 0) {
        reflection.SetString(&message, &field, std::move(text));
      } else if (index < reflection.FieldSize(message, &field)) {
        reflection.SetRepeatedString(&message, &field, index, std::move(text));
      } else {
        reflection.AddString(&message, &field, std::move(text));
      }
      return;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
  }
}

}  // namespace gpuctl
