#!/bin/sh
# Driver calls of the daemon fail, one at a time.
. "$(dirname "$0")/lib_faults.sh"
for call in cuMemCreate:1 cuMemCreate:3 cuMemCreate:4=999 cuMemExportToShareableHandle:1 \
    cuMemExportToShareableHandle:3=999 cuMemAddressReserve:1 cuMemAddressReserve:2 cuMemMap:1 cuMemMap:4 \
    cuMemSetAccess:1 cuMemSetAccess:4 cuMemUnmap:1 cuMemRelease:1 cuStreamCreate:1 cuEventCreate:1 \
    cuMemcpyAsync:1 cuMemcpyAsync:6 cuEventRecord:2 cuStreamWaitEvent:1 cuEventSynchronize:2; do
    one_round daemon "${call%%:*}" "${call#*:}"
done
