/*
 * The handlers of modules and libraries that end: their functions' handles may be given to others,
 * so what is known of them is void before (tables/layouts.h).
 */
#include "shim/handlers/handlers.h"
#include "shim/tables/layouts.h"

CUresult gm_on_cuModuleUnload(CUmodule hmod)
{
    gm_layouts_drop();
    return gm_real.cuModuleUnload(hmod);
}

CUresult gm_on_cuLibraryUnload(CUlibrary library)
{
    gm_layouts_drop();
    return gm_real.cuLibraryUnload(library);
}
