/* features.def as an enum, for shim and daemon. */
#ifndef GM_COMMON_FEATURES_H
#define GM_COMMON_FEATURES_H

enum gm_feature {
#define GM_FEATURE(bit, NAME, name, text) GM_FEATURE_##NAME = 1 << (bit),
#include "common/features.def"
#undef GM_FEATURE
};

#endif
