#!/bin/sh
# Driver calls of an app's shim fail, one at a time.
. "$(dirname "$0")/lib_faults.sh"
for call in cuMemAddressReserve:1 cuMemAddressReserve:2 cuMemImportFromShareableHandle:1 \
    cuMemImportFromShareableHandle:2 cuMemImportFromShareableHandle:9 cuMemMap:1 cuMemMap:2 cuMemMap:5 \
    cuMemSetAccess:1 cuMemSetAccess:3 cuMemUnmap:1 cuMemUnmap:2 cuMemRelease:1 cuMemAddressFree:1 cuMemAlloc:1 \
    cuCtxSynchronize:1=2 cuCtxSynchronize:2=2 cuCtxSynchronize:3=2; do
    one_round app "${call%%:*}" "${call#*:}"
done
