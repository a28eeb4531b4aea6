// Seeded lies: protobuf messages whose fields are changed at random.
#ifndef GPUCTL_TESTS_SOAK_LIAR_H_
#define GPUCTL_TESTS_SOAK_LIAR_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <random>
#include <string>

namespace gpuctl {

class Liar {
 public:
  // `chance`: the probability with which a field changes, 0 to 1.
  Liar(uint64_t seed, double chance) : random_(seed), chance_(chance) {}

  // True with that probability.
  bool Chance(double probability);
  // Returns a number below `limit`, which is above 0.
  uint64_t Below(uint64_t limit);
  double chance() const { return chance_; }

  // Changes fields of the message, and of those in it.
  void Lie(google::protobuf::Message& message);
  // Returns hostile text: escapes, paths that lead out, no UTF-8, or a great length.
  std::string Text(bool is_utf8);
  int64_t Number();

 private:
  void LieField(google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field);
  void LieRepeated(google::protobuf::Message& message,
                   const google::protobuf::FieldDescriptor& field);
  void Set(google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field,
           int index);

  std::mt19937_64 random_;
  const double chance_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SOAK_LIAR_H_
