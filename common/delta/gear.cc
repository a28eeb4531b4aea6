#include "common/delta/gear.h"

#include <algorithm>

namespace gpuctl {
namespace {

// FastCDC's normalization: cuts are rarer below the average size and more frequent above it, so
// that most chunks are near it. The masks use the hash's highest bits, on which all of the last
// bytes have an effect.
constexpr size_t kAverageChunkBytes = 16 << 10;
constexpr uint64_t kRareCut = ~uint64_t{0} << (64 - 16);
constexpr uint64_t kFrequentCut = ~uint64_t{0} << (64 - 12);

}  // namespace

// Random numbers. Both ends of a transfer need the same ones, so they never change.
// clang-format off
const uint64_t kGear[256] = {
    0x2e6ba6ea3c8b9047, 0x47183ddbd82a88d4, 0xf65dc33a11093b7a, 0x837123563bc04a12,
    0xe7f69fc91ed5a8dd, 0xefc3b676928a6097, 0xc691b40d39e004ff, 0x436fdc601d02bcfe,
    0x445c9cd7cde54524, 0xda7998c5a34aad2d, 0x8a4e59898c2e108e, 0xfac8c6e302170745,
    0xa01db4918db178b0, 0xa1b636766e1b41b6, 0xbde5f182862ff601, 0x4882488a5748c80b,
    0xc016b648b52fc09e, 0x5f65d28513b7d84f, 0x2a83732adc36721f, 0x88df311de213191a,
    0x0ad4c21ce9092a14, 0xbe898ec454ae9150, 0x86164220dadc35bb, 0x2e483c94a2b08192,
    0xd7ae5221e9c72a9e, 0x9c94d972aaed6a41, 0xa707eda669217417, 0x16df9ff5bf9ee4ca,
    0x5949bab0741348db, 0xd5c28b328a91b120, 0x73d2b3b6aca2e53c, 0x2c27f8d592586719,
    0xfd92cc6b431691d0, 0x448795b6c80a21e5, 0x525cad13424c63c3, 0x76a93ebe3d3c8dca,
    0xf2d70a050a7b51fd, 0x01375c949cb478d0, 0x21b543bfd37e6d13, 0x4a46cce358e82535,
    0x4678265366074766, 0x005eddde8acf3a2e, 0x244a242043259e65, 0xf69770b2179d2933,
    0x64218d6ff19dea0e, 0xd91a6a2930fabc6e, 0xc1ef334c5888d721, 0x69b4ebfa54f44704,
    0xfb82b6e43722d179, 0x5e6a2d117cd17949, 0x845a72904f487ee9, 0x8f26bbadd76d5a2c,
    0xdb76329822c3056c, 0x8e1208ff41a33df0, 0x26d7bf5bb7886d6c, 0xb096cca3d2e906ce,
    0x552a9e92b5df621e, 0xc0483dfc14596d0e, 0x050a457d57b83a7f, 0xda73fe491b53527f,
    0xf590d5015a44ae5f, 0xc6fa8225f75b5881, 0x65396a575e9a6540, 0x6ab87a0927170845,
    0x0818c010f91a10b4, 0x159641801f4ca550, 0x9283f16224843ca3, 0xebe9911c3f18bb48,
    0x03ffd95fa7071904, 0x50a88c5210ea0213, 0x652036290e126642, 0x88d487ad745f9e68,
    0xa0e0c302a1f0baa7, 0xba068e6b366f32d0, 0x3e1a50a5b4045f70, 0x31552a53b41dd1bf,
    0x2407a1d69ffae08a, 0x9c8779bbbfffb891, 0x33b26a3f7d18d17a, 0xd5b3dbcd74436909,
    0xa7eaa5960a98173c, 0x42b2bb8bc6fb6e50, 0x1b7f5ee2d03a7360, 0xcce734bae097d199,
    0x2828607b6063fecf, 0xcf8791974d6e7592, 0xfa26a00321fccab6, 0x5a57ed330f806452,
    0xf9f75e631d03ae0d, 0xe4cf831588f55637, 0xeaf1e61dd83e4d36, 0x007c87d330cf2daa,
    0xe8812e96d99302a9, 0x2b78bf4ad319328f, 0x75d8c8efb9960320, 0x1db731e8509c6486,
    0xc0fc6ffb03fdd617, 0x621a0f17b033dae7, 0x54fb671931cf752d, 0xa882d7f49a5f7681,
    0xdb63111fd4aeea21, 0xe52cae2342905669, 0x08bfce4006a4288e, 0xdf603ada5e4a317d,
    0xec1f08bee3652847, 0x288a1552878595ea, 0xd32f63e7a7ea244a, 0x49b20de479ae844e,
    0xed22be5918ddad18, 0xf0b0dc4f20327a29, 0x5a329d0c7e59aa30, 0xd98b6b2cb63caa86,
    0xa4dbabc7efb9979f, 0x74598aa0a9c19e42, 0xaeb4c088da5f4920, 0xe9c5eade19679539,
    0x96c9f101bb87e9ab, 0xeb867b1b274141af, 0xf4c292b3f4127124, 0x7f7184ef11d96de0,
    0x0efa3e4ab2f73ff4, 0xbde83b6f9079b698, 0x535ac47d8dc7a1ce, 0x494cd519e875b365,
    0x40018f235de41025, 0xcbf0bf4638407c0d, 0x3986dfaf2130149c, 0x5a7de4fd011cb44f,
    0xab590b45734ea5fa, 0x066705c473b95ced, 0x374badf794076241, 0x37e15f435b123c0d,
    0xceead82dddafc508, 0xd3569219aa6c441f, 0x6e0c08e3e3ed9d0f, 0xb78c906bae509ae0,
    0xdaeaf0da61eeedd8, 0xcb5571270195627b, 0x7ae0dd100272ea08, 0xcb5878fe82e96a6f,
    0x7b353c73ed701341, 0xdf66d8bd6bf13cad, 0xd0d6ca5e7d7d6202, 0x8461842ed616e8d8,
    0x1e6a5b30ada1df58, 0x4d5448912ef2f21d, 0xf1d23c0af2daeb7e, 0xda0e9cb08b5fdad3,
    0x04d5e16d12571fd0, 0xf981d58537481f4c, 0xb9036b3c159fd8e8, 0x37bd29b965988ed9,
    0xfc5dd3c660c8db3d, 0xba70327441bfbde6, 0x8ebc84e1357b6044, 0x5aec07f5b278652c,
    0xa4ea7f1849788858, 0x3d33e9b47ac6419c, 0x87e279dabc5798bd, 0x8308065a28795311,
    0xc9da31009655e4bd, 0x46265d6c4ee4ac4e, 0x8e6426edf0d3080a, 0xd5cf181c118e124b,
    0x7c4528e5ca22973f, 0xbfd6cfa71d77c7c8, 0x5f64d42e99e63e7a, 0x3cd6dfc109fcd906,
    0x53d3a01e7451d0bb, 0x837fe961a220651c, 0xe0fd63987dc42b63, 0x7e2f83b4b28732d3,
    0x1a04f8f5a063e961, 0x720a6ba889ae2ae7, 0x2b3223b1750959a7, 0x72cc592e9bde3bb3,
    0x4086b422254fc7ac, 0xd311545355be694c, 0x1a3ae3a6b6d8d7e5, 0x5e40dc4163fd1727,
    0x446072dea06bb035, 0x3f78eee5809b139b, 0x20c2b3ed74dd4ae7, 0x633d5b7f4887c1d9,
    0x4a5642116a6e397e, 0xc599c260ef9f7faa, 0x6817909483b0d251, 0x4b39c1b3f783dd82,
    0x2bf8dbd60be64f4f, 0xf1bdb49dd96e8d8e, 0x68258dd2aace343c, 0x7df331f1fc0098b2,
    0x92426a4027156043, 0x88f055bcfb2ae00f, 0x217094246de5e9ef, 0x3bc37033fea685f4,
    0xf3ba8ed49a28f568, 0x33281168c168e916, 0xd6fd2f49754b948d, 0x93ffe3c306d4ade1,
    0x4ba47136909dfb91, 0x1316b6cb5cb94546, 0x2798eb0d58ea70e5, 0x711884653610a8db,
    0xba113c63101526e5, 0x1186ad0c3a1b4d6e, 0xa72bcbbc780d38ea, 0x3b9439969b3da1c0,
    0xecd4a7ef7df8b730, 0x285c41031b5938ab, 0xe5097766232c064c, 0x513444c2dce7d0c3,
    0x358aa105e462082e, 0x06117bd547122296, 0x6a8fa069e5b8ef76, 0xea1726f54bdc9a8d,
    0x481d5f46ad0dd0d7, 0x9138cc4a67d96035, 0xadd1e5b423932ab0, 0xdbe58a5dc3ce2f86,
    0xb659ccfa001aa09c, 0xb4e9f3f9e67a41f3, 0x7e78c00d1947de42, 0xd04c89786714bbc0,
    0xe1ca435ddb5890fe, 0x85778b86d45de001, 0xa7582811e5ebbc3a, 0x8302122193413b15,
    0x0ae36f3737546550, 0xd0e7e3e26f13f635, 0x4613f46dc9471a18, 0xefb838c26946f9b3,
    0xdd5584ae033656ba, 0x795bf65e5e706ee9, 0xc40734d3d82f6a1c, 0x58ba58ad5ea41486,
    0x46f2d15dee71be11, 0x4d4fdb8bb4fa0857, 0xe804960d0d41ff0b, 0xfed7ed3ce506e9c8,
    0x29fc06e455f99d4e, 0x1129f880324c10c9, 0xf01a3a0eae4e1663, 0x7abfe8253d9e3679,
    0x27a53cf2726870a7, 0x622c4e9ea853c389, 0xc7c23591ba656ba5, 0x4900df2a32a78725,
    0x0bab14cc9a405b53, 0x2733ccc42a6b34fa, 0x21f57b4bbd42dd90, 0x2a96357350ed7d5f,
    0xd30cc67ed234a0c1, 0x097a3048e3ae0814, 0x0032776374c41bb2, 0x758f5f9fbeb2fd56,
};
// clang-format on

uint64_t GearOf(absl::string_view bytes) {
  uint64_t hash = 0;
  for (const char byte : bytes.substr(bytes.size() - kGearBytes)) {
    hash = (hash << 1) + kGear[static_cast<unsigned char>(byte)];
  }
  return hash;
}

Anchor FindAnchor(absl::string_view bytes) {
  Anchor best;
  bool is_unique = false;
  ForEachPlace(bytes, 0, [&](size_t end, uint64_t hash) {
    if (best.end == 0 || hash > best.hash) {
      best = {static_cast<uint32_t>(end), hash};
      is_unique = true;
    } else if (hash == best.hash) {
      is_unique = false;
    }
    return true;
  });
  return is_unique ? best : Anchor();
}

size_t FirstChunk(absl::string_view bytes) {
  const size_t size = std::min(bytes.size(), kMaxChunkBytes);
  if (size <= kMinChunkBytes) return size;
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  // The hash of a place needs the bytes before it. Those before the smallest chunk's end are
  // enough.
  size_t i = kMinChunkBytes - kGearBytes;
  uint64_t hash = 0;
  for (; i < kMinChunkBytes; ++i) hash = (hash << 1) + kGear[at[i]];
  for (const size_t end = std::min(size, kAverageChunkBytes); i < end; ++i) {
    hash = (hash << 1) + kGear[at[i]];
    if ((hash & kRareCut) == 0) return i + 1;
  }
  for (; i < size; ++i) {
    hash = (hash << 1) + kGear[at[i]];
    if ((hash & kFrequentCut) == 0) return i + 1;
  }
  return size;
}

}  // namespace gpuctl
