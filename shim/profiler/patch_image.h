/* The patches as code (patch.cu), made by the build. Calls nobody. */
#ifndef GM_PROFILER_PATCH_IMAGE_H
#define GM_PROFILER_PATCH_IMAGE_H

extern const char gm_patch_image[];

#endif
